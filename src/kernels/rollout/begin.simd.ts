/** The beginning of episodes and of steps, with the plain twin's bits (`begin.ts`). */

export function listPhase(rows: usize, phase: usize, lowest: i32, from: i32, to: i32): i32 {
  const lowest16 = i8x16.splat(<i8>lowest)
  const end: usize = to
  let at = rows
  let n: usize = from
  for (; n + 16 <= end; n += 16) {
    let bits = i8x16.bitmask(i8x16.ge_u(v128.load(phase + n), lowest16))
    for (; bits != 0; bits &= bits - 1) {
      store<i32>(at, <i32>n + ctz(bits))
      at += 4
    }
  }
  for (; n < end; n++) {
    if (load<u8>(phase + n) < <u8>lowest) continue
    store<i32>(at, <i32>n)
    at += 4
  }
  return <i32>((at - rows) >> 2)
}

export function beginEpisodes(
  episode: usize,
  step: usize,
  episodeReturn: usize,
  phase: usize,
  rows: usize,
  ready: i32,
  count: i32,
): void {
  for (const end = rows + (<usize>count << 2); rows < end; rows += 4) {
    const n: usize = load<u32>(rows)
    const at = n << 2
    store<u32>(episode + at, load<u32>(episode + at) + 1)
    store<i32>(step + at, 0)
    store<f64>(episodeReturn + (n << 3), 0)
    store<u8>(phase + n, <u8>ready)
  }
}

export function clearFlags(terminated: usize, truncated: usize, from: i32, to: i32): void {
  const zero = i8x16.splat(0)
  const end: usize = to
  let n: usize = from
  for (; n + 16 <= end; n += 16) {
    v128.store(terminated + n, zero)
    v128.store(truncated + n, zero)
  }
  for (; n < end; n++) {
    store<u8>(terminated + n, 0)
    store<u8>(truncated + n, 0)
  }
}
