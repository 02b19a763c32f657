// What WGSL leaves open about f32, and how long a loop may be, measured on the device at hand.
// Results go through integers only; `zero` is 0, but the compiler can't know.

@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read> b: array<u32>;
@group(0) @binding(2) var<storage, read> c: array<u32>;
@group(0) @binding(3) var<storage, read_write> results: array<u32>;

struct Sizes { pairs: u32, zero: u32, rounds: u32, unused: u32 }
@group(0) @binding(4) var<uniform> sizes: Sizes;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let i = id.x;
  if (i >= sizes.pairs) {
    return;
  }
  let x = bitcast<f32>(a[i]);
  let y = bitcast<f32>(b[i]);
  let z = bitcast<f32>(c[i]);
  let product = bitcast<u32>(x * y);
  results[i] = bitcast<u32>(x + y);
  results[sizes.pairs + i] = product;
  results[2u * sizes.pairs + i] = bitcast<u32>(x * y + z);
  results[3u * sizes.pairs + i] = bitcast<u32>(bitcast<f32>(product ^ sizes.zero) + z);
  if (i == 0u) {
    var done = 0u;
    for (var round = 0u; round < sizes.rounds; round++) {
      done += 1u + (sizes.zero & round);
      results[4u * sizes.pairs] = done;
    }
  }
}
