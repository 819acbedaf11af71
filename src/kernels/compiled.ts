/**
 * The SIMD bodies, bound: each member has the signature of its plain twin and hands the compiled body byte offsets. Beside
 * this file, once built, lie four modules: {simd, relaxed} × {shared, unshared memory}. A module is compiled once a
 * process; every thread makes its own instance. A call allocates nothing.
 *
 * Every kernel has a SIMD body but those over tokens, sequences, groups, supports and adapters, which are plain in every build (`bind.ts`).
 * Plain is also what remains for the steps of environments whose state is kept in f64.
 */
import { assert, InputError } from '../errors.ts'
import type { Kernels, PlainKernels } from './bind.ts'

/** `simd` is WebAssembly's 128-bit SIMD; `relaxed` has fused multiply-add besides. */
export type CompiledBuild = 'simd' | 'relaxed'

type Bodies = Readonly<Record<string, (...numbers: (number | boolean)[]) => number>>

/** Instantiates a build over `memory`; `plain` serves where the compiled bodies do not. */
export function bindCompiled(
  memory: WebAssembly.Memory,
  build: CompiledBuild,
  plain: Kernels,
): Omit<Kernels, keyof PlainKernels> {
  const buffer: ArrayBufferLike = memory.buffer
  const shared = typeof SharedArrayBuffer !== 'undefined' && buffer instanceof SharedArrayBuffer
  const module = compile(`${build}.${shared ? 'shared' : 'unshared'}.wasm`)
  const body = new WebAssembly.Instance(module, { env: { memory } }).exports as Bodies

  /** Places already looked up: asking a view for its buffer takes longer than a short column's work. */
  const places = new WeakMap<ArrayBufferView, number>()

  /** Where a column begins in the memory. */
  function at(column: ArrayBufferView): number {
    return places.get(column) ?? look(column)
  }

  function look(column: ArrayBufferView): number {
    assert(column.buffer === buffer, 'a column lies outside the memory of its kernels')
    places.set(column, column.byteOffset)
    return column.byteOffset
  }

  return {
    accountEpisodes(
      totals,
      recent,
      recentLength,
      episodeReturn,
      step,
      terminated,
      truncated,
      valid,
      finished,
      threshold,
      numRows,
    ) {
      return body.accountEpisodes(
        at(totals),
        at(recent),
        at(recentLength),
        at(episodeReturn),
        at(step),
        at(terminated),
        at(truncated),
        at(valid),
        finished,
        threshold,
        numRows,
        recent.length,
      )
    },
    adamStep(
      weight,
      moment,
      squareMoment,
      gradient,
      gradientScale,
      learningRate,
      beta1,
      beta2,
      epsilon,
      weightDecay,
      correction1,
      correction2,
      length,
    ) {
      body.adamStep(
        at(weight),
        at(moment),
        at(squareMoment),
        at(gradient),
        gradientScale,
        learningRate,
        beta1,
        beta2,
        epsilon,
        weightDecay,
        correction1,
        correction2,
        length,
      )
    },
    addDepthwise(
      y,
      x,
      weight,
      into,
      multiplier,
      count,
      height,
      width,
      channels,
      outHeight,
      outWidth,
      filterHeight,
      filterWidth,
      strideHeight,
      strideWidth,
      dilationHeight,
      dilationWidth,
      padTop,
      padLeft,
    ) {
      body.addDepthwise(
        at(y),
        at(x),
        at(weight),
        into,
        multiplier,
        count,
        height,
        width,
        channels,
        outHeight,
        outWidth,
        filterHeight,
        filterWidth,
        strideHeight,
        strideWidth,
        dilationHeight,
        dilationWidth,
        padTop,
        padLeft,
      )
    },
    addToSegments(sums, x, segment, numRows, width, numSegments) {
      body.addToSegments(at(sums), at(x), at(segment), numRows, width, numSegments)
    },
    attentionBackward(
      dq,
      dk,
      dv,
      dOut,
      out,
      q,
      k,
      v,
      logSum,
      scores,
      first,
      position,
      numRows,
      numHeads,
      numKeyHeads,
      headWidth,
    ) {
      body.attentionBackward(
        at(dq),
        at(dk),
        at(dv),
        at(dOut),
        at(out),
        at(q),
        at(k),
        at(v),
        at(logSum),
        at(scores),
        at(first),
        at(position),
        numRows,
        numHeads,
        numKeyHeads,
        headWidth,
      )
    },
    attentionForward(out, logSum, q, k, v, scores, first, position, numRows, numHeads, numKeyHeads, headWidth) {
      body.attentionForward(
        at(out),
        at(logSum),
        at(q),
        at(k),
        at(v),
        at(scores),
        at(first),
        at(position),
        numRows,
        numHeads,
        numKeyHeads,
        headWidth,
      )
    },
    beginEpisodes(episode, step, episodeReturn, phase, rows, ready, count) {
      body.beginEpisodes(at(episode), at(step), at(episodeReturn), at(phase), at(rows), ready, count)
    },
    cartPoleReset(
      position,
      velocity,
      angle,
      angularVelocity,
      observation,
      _words,
      lane,
      episode,
      rows,
      key0,
      key1,
      count,
    ) {
      body.cartPoleReset(
        at(position),
        at(velocity),
        at(angle),
        at(angularVelocity),
        at(observation),
        at(lane),
        at(episode),
        at(rows),
        key0,
        key1,
        count,
      )
    },
    cartPoleStep(position, velocity, angle, angularVelocity, observation, reward, terminated, action, from, to) {
      if (position instanceof Float64Array) {
        plain.cartPoleStep(
          position,
          velocity,
          angle,
          angularVelocity,
          observation,
          reward,
          terminated,
          action,
          from,
          to,
        )
        return
      }
      body.cartPoleStep(
        at(position),
        at(velocity),
        at(angle),
        at(angularVelocity),
        at(observation),
        at(reward),
        at(terminated),
        at(action),
        from,
        to,
      )
    },
    categoricalBackward(dLogits, dLogprob, dEntropy, action, logits, sizes, numRows, numChoices, numLogits, from) {
      body.categoricalBackward(
        at(dLogits),
        at(dLogprob),
        at(dEntropy),
        at(action),
        at(logits),
        at(sizes),
        numRows,
        numChoices,
        numLogits,
        from,
      )
    },
    categoricalEvaluate(logprob, entropy, action, logits, sizes, numRows, numChoices, numLogits, from) {
      body.categoricalEvaluate(
        at(logprob),
        at(entropy),
        at(action),
        at(logits),
        at(sizes),
        numRows,
        numChoices,
        numLogits,
        from,
      )
    },
    categoricalMode(action, logprob, logits, sizes, numRows, numChoices, numLogits, from) {
      body.categoricalMode(at(action), at(logprob), at(logits), at(sizes), numRows, numChoices, numLogits, from)
    },
    categoricalSample(action, logprob, logits, uniform, sizes, numRows, numChoices, numLogits, from) {
      body.categoricalSample(
        at(action),
        at(logprob),
        at(logits),
        at(uniform),
        at(sizes),
        numRows,
        numChoices,
        numLogits,
        from,
      )
    },
    clearFlags(terminated, truncated, from, to) {
      body.clearFlags(at(terminated), at(truncated), from, to)
    },
    clipRows(clipped, x, low, high, width, from, to) {
      body.clipRows(at(clipped), at(x), at(low), at(high), width, from, to)
    },
    closeRow(
      rowLane,
      rowEpisode,
      rowStep,
      rowEpisodeReturn,
      rowVersion,
      rowNextValue,
      step,
      episodeReturn,
      phase,
      lane,
      episode,
      reward,
      terminated,
      truncated,
      valid,
      version,
      endedPhase,
      from,
      to,
    ) {
      body.closeRow(
        at(rowLane),
        at(rowEpisode),
        at(rowStep),
        at(rowEpisodeReturn),
        at(rowVersion),
        at(rowNextValue),
        at(step),
        at(episodeReturn),
        at(phase),
        at(lane),
        at(episode),
        at(reward),
        at(terminated),
        at(truncated),
        at(valid),
        version,
        endedPhase,
        from,
        to,
      )
    },
    combineRows(out, a, b, combination, numRows, width, aRow, aStep, bRow, bStep) {
      body.combineRows(at(out), at(a), at(b), combination, numRows, width, aRow, aStep, bRow, bStep)
    },
    compareRows(out, a, b, comparison, numRows, width, aRow, aStep, bRow, bStep) {
      body.compareRows(at(out), at(a), at(b), comparison, numRows, width, aRow, aStep, bRow, bStep)
    },
    completeNextValue(previousNextValue, value, previousTerminated, previousTruncated, previousValid, from, to) {
      body.completeNextValue(
        at(previousNextValue),
        at(value),
        at(previousTerminated),
        at(previousTruncated),
        at(previousValid),
        from,
        to,
      )
    },
    copyRows(out, x, numRows, width, outRow, xRow) {
      body.copyRows(at(out), at(x), numRows, width, outRow, xRow)
    },
    denseBackwardInput(dx, dy, weight, workspace, x, numRows, numInputs, numOutputs, accumulate, activation) {
      body.denseBackwardInput(
        at(dx),
        at(dy),
        at(weight),
        at(workspace),
        at(x),
        numRows,
        numInputs,
        numOutputs,
        accumulate,
        activation,
      )
    },
    denseBackwardWeights(dWeight, dBias, dy, x, numRows, numInputs, numOutputs, xFrom) {
      body.denseBackwardWeights(at(dWeight), at(dBias), at(dy), at(x), numRows, numInputs, numOutputs, xFrom)
    },
    denseForward(y, x, weight, bias, numRows, numInputs, numOutputs, activation, yFrom, xFrom) {
      body.denseForward(at(y), at(x), at(weight), at(bias), numRows, numInputs, numOutputs, activation, yFrom, xFrom)
    },
    dequantizeRows(x, values, scale, numRows, width) {
      body.dequantizeRows(at(x), at(values), at(scale), numRows, width)
    },
    discountedReturns(returns, carry, reward, nextValue, terminated, truncated, valid, gamma, numSteps, numLanes) {
      body.discountedReturns(
        at(returns),
        at(carry),
        at(reward),
        at(nextValue),
        at(terminated),
        at(truncated),
        at(valid),
        gamma,
        numSteps,
        numLanes,
      )
    },
    drawNormal(normal, _words, lane, episode, step, key0, key1, numRows, width, from) {
      body.drawNormal(at(normal), at(lane), at(episode), at(step), key0, key1, numRows, width, from)
    },
    drawUniform(uniform, _words, lane, episode, step, key0, key1, numRows, width, from) {
      body.drawUniform(at(uniform), at(lane), at(episode), at(step), key0, key1, numRows, width, from)
    },
    evaluateVocabulary(logprob, entropy, max, sum, weighted, targetLogit, numRows) {
      body.evaluateVocabulary(at(logprob), at(entropy), at(max), at(sum), at(weighted), at(targetLogit), numRows)
    },
    explainedVariance(value, returns, valid, numRows) {
      return body.explainedVariance(at(value), at(returns), at(valid), numRows)
    },
    findBeyond(x, low, high, width, from, to) {
      return body.findBeyond(at(x), at(low), at(high), width, from, to)
    },
    findIllegal(x, mask, phase, ready, sizes, width, from, to) {
      return body.findIllegal(at(x), at(mask), at(phase), ready, at(sizes), width, from, to)
    },
    findMiswritten(reward, terminated, truncated, rewardMax, from, to) {
      return body.findMiswritten(at(reward), at(terminated), at(truncated), rewardMax, from, to)
    },
    findNonFinite(x, from, to) {
      return body.findNonFinite(at(x), from, to)
    },
    findOutside(x, sizes, width, from, to) {
      return body.findOutside(at(x), at(sizes), width, from, to)
    },
    findStuck(mask, phase, ready, sizes, width, from, to) {
      return body.findStuck(at(mask), at(phase), ready, at(sizes), width, from, to)
    },
    flagsToFloats(out, flag, length) {
      body.flagsToFloats(at(out), at(flag), length)
    },
    foldPatches(
      x,
      patches,
      count,
      height,
      width,
      channels,
      outHeight,
      outWidth,
      filterHeight,
      filterWidth,
      strideHeight,
      strideWidth,
      dilationHeight,
      dilationWidth,
      padTop,
      padLeft,
    ) {
      body.foldPatches(
        at(x),
        at(patches),
        count,
        height,
        width,
        channels,
        outHeight,
        outWidth,
        filterHeight,
        filterWidth,
        strideHeight,
        strideWidth,
        dilationHeight,
        dilationWidth,
        padTop,
        padLeft,
      )
    },
    gae(
      advantage,
      returns,
      carry,
      reward,
      value,
      nextValue,
      terminated,
      truncated,
      valid,
      gamma,
      lambda,
      numSteps,
      numLanes,
    ) {
      body.gae(
        at(advantage),
        at(returns),
        at(carry),
        at(reward),
        at(value),
        at(nextValue),
        at(terminated),
        at(truncated),
        at(valid),
        gamma,
        lambda,
        numSteps,
        numLanes,
      )
    },
    gatherRows(gathered, source, rows, first, count, width) {
      const gather = gathered instanceof Uint8Array ? body.gatherBytes : body.gatherRows
      gather(at(gathered), at(source), at(rows), first, count, width)
    },
    gaussianBackward(dMean, dLogStd, dLogprob, dEntropy, action, mean, logStd, numRows, width, from) {
      body.gaussianBackward(
        at(dMean),
        at(dLogStd),
        at(dLogprob),
        at(dEntropy),
        at(action),
        at(mean),
        at(logStd),
        numRows,
        width,
        from,
      )
    },
    gaussianEvaluate(logprob, entropy, action, mean, logStd, numRows, width, from) {
      body.gaussianEvaluate(at(logprob), at(entropy), at(action), at(mean), at(logStd), numRows, width, from)
    },
    gaussianMode(action, logprob, mean, logStd, numRows, width, from) {
      body.gaussianMode(at(action), at(logprob), at(mean), at(logStd), numRows, width, from)
    },
    gaussianSample(action, logprob, mean, logStd, normal, numRows, width, from) {
      body.gaussianSample(at(action), at(logprob), at(mean), at(logStd), at(normal), numRows, width, from)
    },
    globalNorm(x, length) {
      return body.globalNorm(at(x), length)
    },
    gruBackward(
      dX,
      dWeight,
      dBias,
      dAfter,
      after,
      gates,
      weight,
      recorded,
      continues,
      carried,
      scratch,
      numLanes,
      length,
      units,
    ) {
      body.gruBackward(
        at(dX),
        at(dWeight),
        at(dBias),
        at(dAfter),
        at(after),
        at(gates),
        at(weight),
        at(recorded),
        at(continues),
        at(carried),
        at(scratch),
        numLanes,
        length,
        units,
        continues.length > 0,
        carried.length > 0,
      )
    },
    gruForward(after, gates, x, weight, bias, recorded, continues, carried, scratch, numLanes, length, units) {
      body.gruForward(
        at(after),
        at(gates),
        at(x),
        at(weight),
        at(bias),
        at(recorded),
        at(continues),
        at(carried),
        at(scratch),
        numLanes,
        length,
        units,
        continues.length > 0,
        carried.length > 0,
      )
    },
    klEstimates(estimates, logprob, oldLogprob, numRows) {
      body.klEstimates(at(estimates), at(logprob), at(oldLogprob), numRows)
    },
    limitSteps(truncated, step, stepsMax, from, to) {
      body.limitSteps(at(truncated), at(step), stepsMax, from, to)
    },
    listPhase(rows, phase, lowest, from, to) {
      return body.listPhase(at(rows), at(phase), lowest, from, to)
    },
    listRows(
      listRow,
      listObservation,
      observation,
      terminated,
      truncated,
      valid,
      wanted,
      length,
      firstRow,
      width,
      from,
      to,
    ) {
      return body.listRows(
        at(listRow),
        at(listObservation),
        at(observation),
        at(terminated),
        at(truncated),
        at(valid),
        wanted,
        length,
        firstRow,
        width,
        from,
        to,
      )
    },
    listValid(rows, valid, numRows) {
      return body.listValid(at(rows), at(valid), numRows)
    },
    lstmBackward(
      dX,
      dWeight,
      dBias,
      dAfter,
      after,
      gates,
      weight,
      recorded,
      continues,
      carried,
      scratch,
      numLanes,
      length,
      units,
    ) {
      body.lstmBackward(
        at(dX),
        at(dWeight),
        at(dBias),
        at(dAfter),
        at(after),
        at(gates),
        at(weight),
        at(recorded),
        at(continues),
        at(carried),
        at(scratch),
        numLanes,
        length,
        units,
        continues.length > 0,
        carried.length > 0,
      )
    },
    lstmForward(after, gates, x, weight, bias, recorded, continues, carried, scratch, numLanes, length, units) {
      body.lstmForward(
        at(after),
        at(gates),
        at(x),
        at(weight),
        at(bias),
        at(recorded),
        at(continues),
        at(carried),
        at(scratch),
        numLanes,
        length,
        units,
        continues.length > 0,
        carried.length > 0,
      )
    },
    maskLogits(logits, mask, numRows, numLogits, from) {
      body.maskLogits(at(logits), at(mask), numRows, numLogits, from)
    },
    mapElements(y, x, map, length) {
      body.mapElements(at(y), at(x), map, length)
    },
    matmul(c, a, b, bias, scratch, numRows, numColumns, depth, aTransposed, bTransposed, accumulate) {
      body.matmul(
        at(c),
        at(a),
        at(b),
        at(bias),
        at(scratch),
        numRows,
        numColumns,
        depth,
        aTransposed,
        bTransposed,
        accumulate,
        bias.length > 0,
      )
    },
    meanAndDeviation(moments, x, numRows) {
      body.meanAndDeviation(at(moments), at(x), numRows)
    },
    modeOfVocabulary(token, targetLogit, logits, inverseTemperature, numRows, vocabularySize) {
      body.modeOfVocabulary(at(token), at(targetLogit), at(logits), inverseTemperature, numRows, vocabularySize)
    },
    normalizeRows(y, x, center, deviation, clip, numRows, width, from) {
      body.normalizeRows(at(y), at(x), at(center), at(deviation), clip, numRows, width, from)
    },
    pendulumStep(angle, angularVelocity, observation, reward, action, gravity, from, to) {
      if (angle instanceof Float64Array)
        plain.pendulumStep(angle, angularVelocity, observation, reward, action, gravity, from, to)
      else body.pendulumStep(at(angle), at(angularVelocity), at(observation), at(reward), at(action), gravity, from, to)
    },
    placeRows(into, from, rows, count, width) {
      body.placeRows(at(into), at(from), at(rows), count, width)
    },
    ppoLoss(
      dLogprob,
      dEntropy,
      dValue,
      sums,
      logprob,
      entropy,
      value,
      oldLogprob,
      oldValue,
      advantage,
      returns,
      advantageMean,
      advantageScale,
      clipCoef,
      clipValue,
      entropyCoef,
      valueCoef,
      weight,
      numRows,
      from,
      sumsFrom,
    ) {
      body.ppoLoss(
        at(dLogprob),
        at(dEntropy),
        at(dValue),
        at(sums),
        at(logprob),
        at(entropy),
        at(value),
        at(oldLogprob),
        at(oldValue),
        at(advantage),
        at(returns),
        advantageMean,
        advantageScale,
        clipCoef,
        clipValue,
        entropyCoef,
        valueCoef,
        weight,
        numRows,
        from,
        sumsFrom,
      )
    },
    readRunning(center, deviation, mean, squares, count, epsilon, width) {
      body.readRunning(at(center), at(deviation), at(mean), at(squares), at(count), epsilon, width)
    },
    rmsNormBackward(dx, dWeight, dy, x, weight, inverseRms, numRows, width, accumulate) {
      body.rmsNormBackward(at(dx), at(dWeight), at(dy), at(x), at(weight), at(inverseRms), numRows, width, accumulate)
    },
    rmsNormForward(y, inverseRms, x, weight, epsilon, numRows, width) {
      body.rmsNormForward(at(y), at(inverseRms), at(x), at(weight), epsilon, numRows, width)
    },
    rmspropStep(
      weight,
      moment,
      squareMoment,
      gradient,
      gradientScale,
      learningRate,
      alpha,
      momentum,
      epsilon,
      weightDecay,
      length,
    ) {
      body.rmspropStep(
        at(weight),
        at(moment),
        at(squareMoment),
        at(gradient),
        gradientScale,
        learningRate,
        alpha,
        momentum,
        epsilon,
        weightDecay,
        length,
      )
    },
    rope(x, cosine, sine, position, numRows, numHeads, headWidth, inverse) {
      body.rope(at(x), at(cosine), at(sine), at(position), numRows, numHeads, headWidth, inverse)
    },
    sampleVocabulary(token, targetLogit, logits, max, sum, uniform, inverseTemperature, numRows, vocabularySize) {
      body.sampleVocabulary(
        at(token),
        at(targetLogit),
        at(logits),
        at(max),
        at(sum),
        at(uniform),
        inverseTemperature,
        numRows,
        vocabularySize,
      )
    },
    scatterValues(nextValue, listRow, listValue, length) {
      body.scatterValues(at(nextValue), at(listRow), at(listValue), length)
    },
    selectElements(out, flag, a, b, length) {
      body.selectElements(at(out), at(flag), at(a), at(b), length)
    },
    settleDead(valid, reward, terminated, truncated, phase, ready, from, to) {
      return body.settleDead(at(valid), at(reward), at(terminated), at(truncated), at(phase), ready, from, to)
    },
    sgdStep(weight, moment, gradient, gradientScale, learningRate, momentum, weightDecay, length) {
      body.sgdStep(at(weight), at(moment), at(gradient), gradientScale, learningRate, momentum, weightDecay, length)
    },
    shuffleRows(rows, _words, count, update, epoch, key0, key1) {
      body.shuffleRows(at(rows), count, update, epoch, key0, key1)
    },
    sumMiddle(out, x, count, depth, width) {
      body.sumMiddle(at(out), at(x), count, depth, width)
    },
    sumSlots(slots, numSlots, length) {
      if (slots instanceof Float64Array) body.sumSlots64(at(slots), numSlots, length)
      else body.sumSlots32(at(slots), numSlots, length)
    },
    sumVocabulary(max, sum, weighted, targetLogit, logits, target, inverseTemperature, numRows, firstToken, count) {
      body.sumVocabulary(
        at(max),
        at(sum),
        at(weighted),
        at(targetLogit),
        at(logits),
        at(target),
        inverseTemperature,
        numRows,
        firstToken,
        count,
      )
    },
    swigluBackward(gate, up, dy, length) {
      body.swigluBackward(at(gate), at(up), at(dy), length)
    },
    swigluForward(y, gate, up, length) {
      body.swigluForward(at(y), at(gate), at(up), length)
    },
    transposeMatrices(out, x, count, height, width) {
      body.transposeMatrices(at(out), at(x), count, height, width)
    },
    unfoldPatches(
      patches,
      x,
      count,
      height,
      width,
      channels,
      outHeight,
      outWidth,
      filterHeight,
      filterWidth,
      strideHeight,
      strideWidth,
      dilationHeight,
      dilationWidth,
      padTop,
      padLeft,
    ) {
      body.unfoldPatches(
        at(patches),
        at(x),
        count,
        height,
        width,
        channels,
        outHeight,
        outWidth,
        filterHeight,
        filterWidth,
        strideHeight,
        strideWidth,
        dilationHeight,
        dilationWidth,
        padTop,
        padLeft,
      )
    },
    updateRunning(mean, squares, count, x, valid, numRows, width) {
      body.updateRunning(at(mean), at(squares), at(count), at(x), at(valid), numRows, width)
    },
    vocabularyBackward(
      logits,
      dLogprob,
      dEntropy,
      entropy,
      max,
      sum,
      target,
      inverseTemperature,
      numRows,
      firstToken,
      count,
    ) {
      body.vocabularyBackward(
        at(logits),
        at(dLogprob),
        at(dEntropy),
        at(entropy),
        at(max),
        at(sum),
        at(target),
        inverseTemperature,
        numRows,
        firstToken,
        count,
      )
    },
    vtrace(
      advantage,
      returns,
      carry,
      logprob,
      oldLogprob,
      reward,
      value,
      nextValue,
      terminated,
      truncated,
      valid,
      gamma,
      lambda,
      rhoMax,
      cMax,
      numSteps,
      numLanes,
    ) {
      body.vtrace(
        at(advantage),
        at(returns),
        at(carry),
        at(logprob),
        at(oldLogprob),
        at(reward),
        at(value),
        at(nextValue),
        at(terminated),
        at(truncated),
        at(valid),
        gamma,
        lambda,
        rhoMax,
        cMax,
        numSteps,
        numLanes,
      )
    },
  }
}

const modules = new Map<string, WebAssembly.Module>()

/** The compiled modules, whether this file runs from src or from dist. */
const folder = new URL(import.meta.url.endsWith('.ts') ? '../../dist/src/kernels/' : './', import.meta.url)

function compile(file: string): WebAssembly.Module {
  let module = modules.get(file)
  if (module === undefined) {
    module = new WebAssembly.Module(read(file))
    modules.set(file, module)
  }
  return module
}

function read(file: string): Uint8Array<ArrayBuffer> {
  const url = new URL(file, folder)
  const fs = builtin('node:fs')
  if (fs === undefined)
    throw new InputError('kernels', 'a runtime that cannot read files', 'Node for compiled kernels, or plain')
  try {
    return new Uint8Array(fs.readFileSync(url))
  } catch (cause) {
    throw new InputError('kernels', `no ${file} in ${folder.pathname}`, 'compiled kernels there: run `npm run build`', {
      cause,
    })
  }
}

let best: CompiledBuild | undefined | null = null

/** The fastest compiled build that this runtime can run; undefined where it can run none. */
export function bestCompiledBuild(): CompiledBuild | undefined {
  if (best === null) best = findBest()
  return best
}

function findBest(): CompiledBuild | undefined {
  if (builtin('node:fs') === undefined || !WebAssembly.validate(USES_SIMD)) return undefined
  if (!WebAssembly.validate(USES_RELAXED_SIMD)) {
    // Node 20 has it behind a flag, which holds for modules compiled later, in this thread and in those it starts.
    builtin('node:v8')?.setFlagsFromString('--experimental-wasm-relaxed-simd')
  }
  return WebAssembly.validate(USES_RELAXED_SIMD) ? 'relaxed' : 'simd'
}

/** A module of Node's own; undefined elsewhere. */
function builtin<Name extends 'node:fs' | 'node:v8'>(name: Name) {
  const runtime = globalThis.process as NodeJS.Process | undefined
  return runtime?.getBuiltinModule?.(name)
}

// Two modules of one function `() => v128`: with i8x16.splat, and with f32x4.relaxed_madd of three such.
const HEADER = [0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10]
const SPLAT = [65, 0, 253, 15]
const USES_SIMD = new Uint8Array([...HEADER, 8, 1, 6, 0, ...SPLAT, 11])
const USES_RELAXED_SIMD = new Uint8Array([...HEADER, 19, 1, 17, 0, ...SPLAT, ...SPLAT, ...SPLAT, 253, 133, 2, 11])
