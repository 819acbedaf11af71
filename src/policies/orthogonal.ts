import { type Random, Stream } from '../base/random.ts'

/** Vectors that are made orthogonal to each other at once; those of a panel are not yet so to those before it. */
const PANEL = 256
/** Units whose projections are taken off a panel while they are in the cache: a multiple of four. */
const UNITS = 16

/**
 * Fills a numInputs × numOutputs matrix with an orthogonal one times `gain` (Saxe, McClelland, Ganguli 2014): normal random numbers,
 * keyed by (seed, key, layer), orthonormalized along the longer side by modified Gram–Schmidt in f64: twice within a panel, once against
 * the panels before it, which costs no bit of f32 but a few in millions.
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
  const none = new Float64Array(length)
  for (let first = 0; first < count; first += PANEL) {
    const panel = vectors.slice(first, first + PANEL)
    for (let from = 0; from < first; from += UNITS) {
      for (let v = 0; v < panel.length; v += 2) {
        for (let u = from; u < from + UNITS; u += 4) {
          subtractFour(panel[v]!, panel[v + 1] ?? none, vectors[u]!, vectors[u + 1]!, vectors[u + 2]!, vectors[u + 3]!)
        }
      }
    }
    orthonormalize(panel)
  }
  for (let v = 0; v < count; v++) {
    for (let i = 0; i < length; i++) {
      const place = tall ? i * numOutputs + v : v * numOutputs + i
      weight[place] = gain * vectors[v]![i]!
    }
  }
}

function orthonormalize(vectors: readonly Float64Array[]): void {
  for (const [v, vector] of vectors.entries()) {
    for (let pass = 0; pass < 2; pass++) {
      for (let u = 0; u < v; u++) subtractProjection(vector, vectors[u]!)
    }
    const norm = Math.sqrt(dot(vector, vector))
    for (let i = 0; i < vector.length; i++) vector[i] = vector[i]! / norm
  }
}

/** Takes the projections on four orthonormal vectors off two vectors. */
function subtractFour(
  x: Float64Array,
  y: Float64Array,
  a: Float64Array,
  b: Float64Array,
  c: Float64Array,
  d: Float64Array,
): void {
  let [xa, xb, xc, xd, ya, yb, yc, yd] = [0, 0, 0, 0, 0, 0, 0, 0]
  for (let i = 0; i < x.length; i++) {
    const xi = x[i]!
    const yi = y[i]!
    xa += xi * a[i]!
    xb += xi * b[i]!
    xc += xi * c[i]!
    xd += xi * d[i]!
    ya += yi * a[i]!
    yb += yi * b[i]!
    yc += yi * c[i]!
    yd += yi * d[i]!
  }
  for (let i = 0; i < x.length; i++) {
    x[i] = x[i]! - (xa * a[i]! + xb * b[i]! + xc * c[i]! + xd * d[i]!)
    y[i] = y[i]! - (ya * a[i]! + yb * b[i]! + yc * c[i]! + yd * d[i]!)
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
