/** Calls whatever the package exports with values that nobody means, in an empty folder, and prints a line of JSON of each error that is no sentence. */
const VALUES = [null, undefined, 42, 'x', [], {}]
/** What Node says where a value is not what was expected. */
const RAW =
  /Cannot (read|destructure|convert|use)|is not (a function|iterable|a constructor)|Invalid value used|argument must be of type|call stack/
/** Of pages and pictures alone, which need nothing of the package (`curves.ts`), or with defaults that take long. */
const LEFT_OUT = ['drawCurves', 'simulate', 'RolloutStarvedError']

const seen = new Set(LEFT_OUT)
const settled = (promise) => Promise.race([promise, new Promise((resolve) => setTimeout(resolve, 2000))])
let calls = 0
for (const entry of process.argv.slice(2)) {
  for (const [name, given] of Object.entries(await import(entry))) {
    if (typeof given !== 'function' || seen.has(name)) continue
    seen.add(name)
    const isClass = /^class\b/.test(Function.prototype.toString.call(given))
    for (const value of VALUES) {
      calls++
      try {
        const returned = await settled(isClass ? new given(value) : given(value))
        await settled(returned?.close?.())
      } catch (error) {
        if (error?.name !== 'InputError' && RAW.test(error?.message))
          console.log(JSON.stringify([name, String(JSON.stringify(value)), error.message]))
      }
    }
  }
}
console.log(JSON.stringify({ calls }))
process.exit()
