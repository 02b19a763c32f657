"""What models are fed: inputs made up for them, and counterexamples made smaller."""
