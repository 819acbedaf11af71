/** Einsum as a matrix product, with its gradient, which tfjs has on no backend. */
import type { GradConfig, Tensor, TensorInfo } from '@tensorflow/tfjs-core'
import { type Heap, type KernelArguments, sizeOf, type TensorKernels, type Tfjs } from './heap.ts'

/** A tensor and the letter of each of its axes. */
interface Term {
  readonly tensor: TensorInfo
  readonly axes: string
}

export function einsumKernels(heap: Heap): TensorKernels {
  const einsum = ({ inputs, attrs }: KernelArguments): TensorInfo => {
    const { equation } = attrs as unknown as { equation: string }
    const tensors = Object.values(inputs) as TensorInfo[]
    const { allDims, idDims } = heap.tf.backend_util.decodeEinsumEquation(equation, tensors.length)
    heap.tf.backend_util.checkEinsumDimSizes(allDims.length, idDims, tensors as Tensor[])
    const { terms, output } = parse(equation)
    const result = contract(
      heap,
      tensors.map((tensor, i) => ({ tensor, axes: terms[i]! })),
      output,
    )
    return result
  }
  return { Einsum: einsum }
}

/**
 * The product of one or two terms, summed over the letters that `output` lacks. Letters that only one term has are summed first; then
 * each term is transposed to (batch, free, contracted) order, so that one batch of matrix products computes the result.
 */
function contract(heap: Heap, given: readonly Term[], output: string): TensorInfo {
  const made: TensorInfo[] = []
  const keep = (tensor: TensorInfo): TensorInfo => {
    made.push(tensor)
    return tensor
  }
  const arranged = ({ tensor, axes }: Term, order: string): TensorInfo => {
    const perm = [...order].map((axis) => axes.indexOf(axis))
    return perm.every((from, to) => from === to) ? tensor : keep(heap.run('Transpose', { x: tensor }, { perm }))
  }
  const wanted = given.map(({ tensor, axes }, i): Term => {
    const others = output + given.filter((_, j) => j !== i).map((other) => other.axes)
    const alone = [...axes].flatMap((axis, at) => (others.includes(axis) ? [] : [at]))
    if (alone.length === 0) return { tensor, axes }
    const summed = keep(heap.run('Sum', { x: tensor }, { axis: alone, keepDims: false }))
    return { tensor: summed, axes: [...axes].filter((axis) => others.includes(axis)).join('') }
  })
  const [a, b] = wanted as [Term, Term | undefined]
  let result: Term
  if (b === undefined) result = a
  else {
    const both = [...a.axes].filter((axis) => b.axes.includes(axis))
    const batch = both.filter((axis) => output.includes(axis)).join('')
    const contracted = both.filter((axis) => !output.includes(axis)).join('')
    const freeA = [...a.axes].filter((axis) => !both.includes(axis)).join('')
    const freeB = [...b.axes].filter((axis) => !both.includes(axis)).join('')
    const length = (axis: string) => a.tensor.shape[a.axes.indexOf(axis)] ?? b.tensor.shape[b.axes.indexOf(axis)]!
    const lengths = (axes: string) => [...axes].map(length)
    const [numBatches, depth] = [sizeOf(lengths(batch)), sizeOf(lengths(contracted))]
    const [rows, columns] = [sizeOf(lengths(freeA)), sizeOf(lengths(freeB))]
    const left = keep(heap.reshaped(arranged(a, batch + freeA + contracted), [numBatches, rows, depth]))
    const right = keep(heap.reshaped(arranged(b, batch + contracted + freeB), [numBatches, depth, columns]))
    const product = heap.run('BatchMatMul', { a: left, b: right }, { transposeA: false, transposeB: false })
    const axes = batch + freeA + freeB
    result = { tensor: keep(heap.reshaped(product, lengths(axes))), axes }
    heap.free(product)
  }
  const last = arranged(result, output)
  const owned = heap.reshaped(last, last.shape)
  for (const tensor of made) heap.free(tensor)
  return owned
}

/**
 * The gradient by a term is the einsum of the output's gradient and the other term. Along letters that only this term has, which are
 * summed, it is constant.
 */
export function einsumGradient(tf: Tfjs): GradConfig {
  return {
    kernelName: 'Einsum',
    saveAllInputs: true,
    gradFunc: (dy, saved, attrs) => {
      const { equation } = attrs as unknown as { equation: string }
      const { terms, output } = parse(equation)
      const gradients = terms.map((own, i) => () => {
        const other = terms[1 - i]
        const reached = [...own].filter((axis) => output.includes(axis) || other?.includes(axis)).join('')
        const gradient =
          other === undefined
            ? tf.einsum(`${output}->${reached}`, dy as Tensor)
            : tf.einsum(`${output},${other}->${reached}`, dy as Tensor, saved[1 - i]!)
        const { shape } = saved[i]!
        const spread = shape.map((length, axis) => (reached.includes(own[axis]!) ? length : 1))
        return tf.broadcastTo(tf.reshape(gradient, spread), shape)
      })
      return Object.fromEntries(gradients.map((gradient, i) => [String(i), gradient]))
    },
  }
}

function parse(equation: string): { terms: string[]; output: string } {
  const [input, output] = equation.replace(/\s/g, '').split('->')
  return { terms: input!.split(','), output: output! }
}
