"""The page of `looplift explain --html`: findings in words, loops drawn before and after."""
