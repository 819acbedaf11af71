import { type Random, Stream } from '../base/random.ts'

/**
 * Fills a numInputs × numOutputs matrix with an orthogonal one times `gain` (Saxe, McClelland, Ganguli 2014): normal random numbers,
 * keyed by (seed, key, layer), orthonormalized along the longer side by modified Gram–Schmidt in f64, twice.
 */
export function orthogonal(
  weight: Float32Array,
  numInputs: number,
  numOutputs: number,
  gain: number,
  random: Random,
  key: number,
  layer: number,
): void {
  const tall = numInputs >= numOutputs
  const count = tall ? numOutputs : numInputs
  const length = tall ? numInputs : numOutputs
  const vectors = Array.from({ length: count }, (_, v) => normals(length, v, random, key, layer))
  for (let v = 0; v < count; v++) {
    const vector = vectors[v]!
    for (let pass = 0; pass < 2; pass++) {
      for (let u = 0; u < v; u++) subtractProjection(vector, vectors[u]!)
    }
    const norm = Math.sqrt(dot(vector, vector))
    for (let i = 0; i < length; i++) vector[i] = vector[i]! / norm
  }
  for (let v = 0; v < count; v++) {
    for (let i = 0; i < length; i++) {
      const place = tall ? i * numOutputs + v : v * numOutputs + i
      weight[place] = gain * vectors[v]![i]!
    }
  }
}

function normals(length: number, vector: number, random: Random, key: number, layer: number): Float64Array {
  const values = new Float64Array(length)
  const blocks = Math.ceil(length / 2)
  for (let block = 0; block < blocks; block++) {
    random.draw(Stream.initialize, key, layer, vector * blocks + block)
    values[2 * block] = random.normal(0, 0)
    if (2 * block + 1 < length) values[2 * block + 1] = random.normal(0, 1)
  }
  return values
}

function subtractProjection(vector: Float64Array, unit: Float64Array): void {
  const along = dot(vector, unit)
  for (let i = 0; i < vector.length; i++) vector[i] = vector[i]! - along * unit[i]!
}

function dot(a: Float64Array, b: Float64Array): number {
  let sum = 0
  for (let i = 0; i < a.length; i++) sum += a[i]! * b[i]!
  return sum
}
