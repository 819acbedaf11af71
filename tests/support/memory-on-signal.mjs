/** Tells the memory of a process on standard error when it is sent SIGUSR2: `node --expose-gc --import ./memory-on-signal.mjs …`. */
process.on('SIGUSR2', () => {
  for (let i = 0; i < 3; i++) global.gc()
  const { rss, heapUsed, external, arrayBuffers } = process.memoryUsage()
  process.stderr.write(`memory ${JSON.stringify({ rss, heapUsed, external, arrayBuffers })}\n`)
})
