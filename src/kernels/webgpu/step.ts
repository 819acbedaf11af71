/**
 * Work on a WebGPU device, as a plan: columns that get memory on the device, and steps, each a shader of our own over some of them. A plan
 * needs no GPU; `Gpu` (gpu.ts) gives the columns their buffers and runs the steps. Columns have the layout of the arena's, in elements of
 * 4 bytes. A shader is written for the sizes of its step, which are constants in it; numbers that change from one
 * minibatch to the next are in the column `numbers`.
 */

/** A column on the device. */
export interface DeviceColumn {
  readonly name: string
  readonly type: 'f32' | 'u32' | 'i32'
  readonly length: number
}

/** One dispatch of a shader. */
export interface Step {
  readonly name: string
  /** WGSL with the entry point `main`. */
  readonly code: string
  /** The columns of its bindings 0, 1, 2, … of group 0. */
  readonly columns: readonly DeviceColumn[]
  /** Number of workgroups, at most MAX_GROUPS each. */
  readonly groups: readonly [number, number, number]
}

/** The largest number of workgroups in one dimension that every device accepts. */
export const MAX_GROUPS = 65_535

export function deviceColumn(name: string, length: number, type: DeviceColumn['type'] = 'f32'): DeviceColumn {
  return { name, type, length: Math.max(1, length) }
}

/** The columns of a shader by the names that it has for them; it writes those of `writes`. */
export interface Bindings {
  readonly reads: Readonly<Record<string, DeviceColumn>>
  readonly writes: Readonly<Record<string, DeviceColumn>>
}

/** A step over these columns. `body` has functions, workgroup variables and `main`. */
export function step(name: string, { reads, writes }: Bindings, groups: Step['groups'], body: string): Step {
  const bound = [
    ...Object.entries(reads).map(([binding, column]) => ({ binding, column, access: 'read' })),
    ...Object.entries(writes).map(([binding, column]) => ({ binding, column, access: 'read_write' })),
  ]
  const declared = bound.map(
    ({ binding, column, access }, i) =>
      `@group(0) @binding(${i}) var<storage, ${access}> ${binding}: array<${column.type}>;`,
  )
  return { name, code: `${declared.join('\n')}\n${body}`, columns: bound.map(({ column }) => column), groups }
}

/** Invocations of a workgroup of `elementwise` and of reductions. */
export const GROUP = 256

/** A step with an invocation for each of `count` elements, whose index is `i` in `body`. */
export function elementwise(name: string, bindings: Bindings, count: number, body: string, functions = ''): Step {
  const all = Math.ceil(count / GROUP)
  const across = Math.min(all, MAX_GROUPS)
  const groups = [across, Math.ceil(all / across), 1] as const
  return step(
    name,
    bindings,
    groups,
    `${functions}
@compute @workgroup_size(${GROUP})
fn main(@builtin(global_invocation_id) id: vec3u) {
  let i = id.x + id.y * ${across * GROUP}u;
  if (i >= ${count}u) { return; }
  ${body}
}`,
  )
}

/** WGSL that sums `name`, a workgroup array of GROUP numbers, into its element 0; `lane` is the invocation's index. */
export function sumInGroup(name: string): string {
  return `workgroupBarrier();
  for (var half = ${GROUP / 2}u; half > 0u; half = half >> 1u) {
    if (lane < half) { ${name}[lane] += ${name}[lane + half]; }
    workgroupBarrier();
  }`
}

/** Whether a number is finite, by its bits: shaders may assume that no number is NaN. */
export const IS_FINITE = `fn isFinite(x: f32) -> bool { return (bitcast<u32>(x) & 0x7f800000u) != 0x7f800000u; }`

/**
 * The places in the column `numbers`, which is written before each block of a minibatch: `first` and `count` of its units in `order`, the
 * block's index, how many blocks the minibatch has, and the minibatch's index in the update (u32); then numbers of the loss and of Adam.
 */
export const Numbers = {
  first: 0,
  count: 1,
  block: 2,
  numBlocks: 3,
  minibatch: 4,
  weight: 5,
  advantageMean: 6,
  advantageScale: 7,
  learningRate: 8,
  correction1: 9,
  correction2: 10,
  maxNorm: 11,
  /** The first number of the loss's own. */
  loss: 12,
  length: 24,
} as const

/** WGSL that reads a number of the minibatch: a whole number, or a float. */
export const wholeNumber = (name: keyof typeof Numbers): string => `bitcast<u32>(numbers[${Numbers[name]}])`
export const floatNumber = (name: keyof typeof Numbers): string => `numbers[${Numbers[name]}]`

/** A number as WGSL has it. */
export function floatOf(value: number): string {
  const text = String(value)
  return /[.e]/.test(text) ? text : `${text}.0`
}
