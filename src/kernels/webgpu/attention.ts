/**
 * Causal attention as shaders (kernels/transformer/attention.ts), over packed rows whose queries, keys and values lie side by side in one
 * column: row × (heads of q, of k, of v). A row sees the rows of its own sequence up to itself, or those in its window.
 * An invocation computes a row of one head, and the rows of a workgroup share tiles of keys and values, so no matrix of
 * scores is in memory.
 */
import type { AttentionShape } from '../transformer/attention.ts'
import { type DeviceColumn, type Step, step, wholeNumber } from './step.ts'

/** The numbers of a packed row, each an i32 of the column `rows`: the sequence's first and last row, the token, its target and position, and `byToken`, the rows in the order of their tokens. */
export const RowField = { first: 0, last: 1, token: 2, target: 3, position: 4, byToken: 5, length: 6 } as const

export interface AttentionColumns {
  readonly qkv: DeviceColumn
  readonly rows: DeviceColumn
  readonly numbers: DeviceColumn
  readonly attended: DeviceColumn
  /** Two numbers per row and head: log Σ exp score, and dAttended · attended, which the backward pass leaves. */
  readonly stats: DeviceColumn
}

const LANES = 64

/** Places of heads in a row of qkv, and how shaders read them. `window`: how many rows a row sees; 0: all. */
function layoutOf({ numHeads, numKeyHeads, headWidth }: AttentionShape, window: number) {
  const fours = Math.ceil(headWidth / 4)
  const stride = (numHeads + 2 * numKeyHeads) * headWidth
  const range = Array.from({ length: fours }, (_, c) => c)
  const at = (column: string) => (c: string, i: number) => {
    const value = `${column}[at + ${c} * 4u + ${i}u]`
    return headWidth % 4 === 0 ? value : `select(0.0, ${value}, ${c} * 4u + ${i}u < ${headWidth}u)`
  }
  const reader = (name: string, column: string) => `fn ${name}(at: u32, c: u32) -> vec4f {
  return vec4f(${[0, 1, 2, 3].map((i) => at(column)('c', i)).join(', ')});
}`
  return {
    fours,
    stride,
    /** Rows of a tile. */
    tile: fours <= 16 ? 32 : 16,
    keyAt: numHeads * headWidth,
    valueAt: (numHeads + numKeyHeads) * headWidth,
    perKey: numHeads / numKeyHeads,
    scale: 1 / Math.sqrt(headWidth),
    reader,
    each: (text: (c: number) => string, between = ' ') => range.map(text).join(between),
    dot: (name: string, tile: string) =>
      range.map((c) => `dot(${name}${c}, ${tile}[j * ${fours}u + ${c}u])`).join(' + '),
    write: (column: string, place: string, value: (c: number) => string) =>
      range
        .flatMap((c) =>
          [0, 1, 2, 3]
            .filter((i) => 4 * c + i < headWidth)
            .map((i) => `${column}[${place} + ${4 * c + i}u] = (${value(c)})[${i}];`),
        )
        .join('\n    '),
    functions: `fn firstOf(row: u32) -> u32 { ${
      window > 0
        ? `return u32(max(rows[row * ${RowField.length}u], i32(row) - ${window - 1}));`
        : `return u32(rows[row * ${RowField.length}u]);`
    } }
fn lastOf(row: u32) -> u32 { ${
      window > 0
        ? `return u32(min(rows[row * ${RowField.length}u + ${RowField.last}u], i32(row) + ${window - 1}));`
        : `return u32(rows[row * ${RowField.length}u + ${RowField.last}u]);`
    } }`,
  }
}

const BEGIN = `let count = ${wholeNumber('count')};
  let tile = group.x * ${LANES}u;
  if (tile >= count) { return; }
  let row = tile + lane;
  let own = min(row, count - 1u);`

const MAIN = `@compute @workgroup_size(${LANES})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  ${BEGIN}`

/** Writes `attended`, and the first numbers of `stats`. */
export function attentionForward(
  { qkv, rows, numbers, attended, stats }: AttentionColumns,
  shape: AttentionShape,
  window: number,
  blockRows: number,
): Step {
  const { fours, stride, tile, keyAt, valueAt, perKey, scale, reader, each, dot, write, functions } = layoutOf(
    shape,
    window,
  )
  const { numHeads, headWidth } = shape
  return step(
    'attention',
    { reads: { qkv, rows, numbers }, writes: { attended, stats } },
    [Math.ceil(blockRows / LANES), numHeads, 1],
    `${functions}
${reader('part', 'qkv')}
var<workgroup> keys: array<vec4f, ${tile * fours}>;
var<workgroup> values: array<vec4f, ${tile * fours}>;
${MAIN}
  let head = group.y;
  let key0 = (head / ${perKey}u) * ${headWidth}u;
  let first = firstOf(own);
  let end = min(tile + ${LANES}u, count);
  ${each((c) => `let q${c} = part(own * ${stride}u + head * ${headWidth}u, ${c}u) * ${scale};`)}
  ${each((c) => `var o${c} = vec4f(0.0);`)}
  var most = -3e38;
  var total = 0.0;
  for (var base = firstOf(tile); base < end; base += ${tile}u) {
    workgroupBarrier();
    for (var t = lane; t < ${tile * fours}u; t += ${LANES}u) {
      let at = min(base + t / ${fours}u, end - 1u) * ${stride}u + key0;
      keys[t] = part(at + ${keyAt}u, t % ${fours}u);
      values[t] = part(at + ${valueAt}u, t % ${fours}u);
    }
    workgroupBarrier();
    let stop = min(${tile}u, end - base);
    for (var j = 0u; j < stop; j++) {
      if (base + j < first || base + j > own) { continue; }
      let score = ${dot('q', 'keys')};
      let higher = max(most, score);
      let shrink = exp(most - higher);
      let p = exp(score - higher);
      total = total * shrink + p;
      ${each((c) => `o${c} = o${c} * shrink + p * values[j * ${fours}u + ${c}u];`)}
      most = higher;
    }
  }
  if (row < count) {
    let place = row * ${numHeads}u + head;
    ${write('attended', `place * ${headWidth}u`, (c) => `o${c} / total`)}
    stats[place * 2u] = most + log(total);
  }
}`,
  )
}

/** Writes dqkv from dAttended, after `attentionForward` of the same rows. */
export function attentionBackward(
  { qkv, rows, numbers, attended, stats }: AttentionColumns,
  dAttended: DeviceColumn,
  dqkv: DeviceColumn,
  shape: AttentionShape,
  window: number,
  blockRows: number,
): Step[] {
  const { numHeads, numKeyHeads, headWidth } = shape
  const layout = layoutOf(shape, window)
  const { fours, stride, tile, keyAt, valueAt, perKey, scale, reader, each, dot, write, functions } = layout
  const byQuery = step(
    'gradient by queries',
    { reads: { qkv, rows, numbers, attended, dAttended }, writes: { stats, dqkv } },
    [Math.ceil(blockRows / LANES), numHeads, 1],
    `${functions}
${reader('part', 'qkv')}
${reader('out', 'attended')}
${reader('dOut', 'dAttended')}
var<workgroup> keys: array<vec4f, ${tile * fours}>;
var<workgroup> values: array<vec4f, ${tile * fours}>;
${MAIN}
  let head = group.y;
  let key0 = (head / ${perKey}u) * ${headWidth}u;
  let first = firstOf(own);
  let end = min(tile + ${LANES}u, count);
  let place = own * ${numHeads}u + head;
  ${each((c) => `let q${c} = part(own * ${stride}u + head * ${headWidth}u, ${c}u) * ${scale};`)}
  ${each((c) => `let d${c} = dOut(place * ${headWidth}u, ${c}u);`)}
  ${each((c) => `var o${c} = vec4f(0.0);`)}
  let shared_ = ${each((c) => `dot(d${c}, out(place * ${headWidth}u, ${c}u))`, ' + ')};
  let logSum = stats[place * 2u];
  for (var base = firstOf(tile); base < end; base += ${tile}u) {
    workgroupBarrier();
    for (var t = lane; t < ${tile * fours}u; t += ${LANES}u) {
      let at = min(base + t / ${fours}u, end - 1u) * ${stride}u + key0;
      keys[t] = part(at + ${keyAt}u, t % ${fours}u);
      values[t] = part(at + ${valueAt}u, t % ${fours}u);
    }
    workgroupBarrier();
    let stop = min(${tile}u, end - base);
    for (var j = 0u; j < stop; j++) {
      if (base + j < first || base + j > own) { continue; }
      let p = exp(${dot('q', 'keys')} - logSum);
      let dScore = p * (${dot('d', 'values')} - shared_) * ${scale};
      ${each((c) => `o${c} += dScore * keys[j * ${fours}u + ${c}u];`)}
    }
  }
  if (row < count) {
    ${write('dqkv', `row * ${stride}u + head * ${headWidth}u`, (c) => `o${c}`)}
    stats[place * 2u + 1u] = shared_;
  }
}`,
  )
  /** An invocation has a row's key or value, whose gradient it sums over the rows that see it. */
  const byKey = (of: 'key' | 'value') =>
    step(
      `gradient by ${of}s`,
      { reads: { qkv, rows, numbers, dAttended, stats }, writes: { dqkv } },
      [Math.ceil(blockRows / LANES), numKeyHeads, 1],
      `${functions}
${reader('part', 'qkv')}
${reader('dOut', 'dAttended')}
var<workgroup> queries: array<vec4f, ${tile * fours}>;
var<workgroup> dOuts: array<vec4f, ${tile * fours}>;
var<workgroup> sums: array<vec2f, ${tile}>;
${MAIN}
  let at0 = own * ${stride}u + group.y * ${headWidth}u;
  let last = lastOf(own);
  let end = lastOf(min(tile + ${LANES - 1}u, count - 1u)) + 1u;
  ${each((c) => `let k${c} = part(at0 + ${keyAt}u, ${c}u);`)}
  ${of === 'key' ? each((c) => `let v${c} = part(at0 + ${valueAt}u, ${c}u);`) : ''}
  ${each((c) => `var o${c} = vec4f(0.0);`)}
  for (var head = group.y * ${perKey}u; head < (group.y + 1u) * ${perKey}u; head++) {
    for (var base = tile; base < end; base += ${tile}u) {
      workgroupBarrier();
      for (var t = lane; t < ${tile * fours}u; t += ${LANES}u) {
        let seen = min(base + t / ${fours}u, end - 1u);
        queries[t] = part(seen * ${stride}u + head * ${headWidth}u, t % ${fours}u) * ${scale};
        dOuts[t] = dOut((seen * ${numHeads}u + head) * ${headWidth}u, t % ${fours}u);
        if (t < ${tile}u) {
          let place = min(base + t, end - 1u) * ${numHeads}u + head;
          sums[t] = vec2f(stats[place * 2u], stats[place * 2u + 1u]);
        }
      }
      workgroupBarrier();
      let stop = min(${tile}u, end - base);
      for (var j = 0u; j < stop; j++) {
        if (base + j < row || base + j > last) { continue; }
        let p = exp(${dot('k', 'queries')} - sums[j].x);
        ${of === 'key' ? `let by = p * (${dot('v', 'dOuts')} - sums[j].y);` : 'let by = p;'}
        ${each((c) => `o${c} += by * ${of === 'key' ? 'queries' : 'dOuts'}[j * ${fours}u + ${c}u];`)}
      }
    }
  }
  if (row < count) {
    ${write('dqkv', `at0 + ${of === 'key' ? keyAt : valueAt}u`, (c) => `o${c}`)}
  }
}`,
    )
  return [byQuery, byKey('key'), byKey('value')]
}
