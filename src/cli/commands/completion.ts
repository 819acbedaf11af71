/** Shell completion: a script per shell, which asks this program for candidates. */
import { dirname, join } from 'node:path'
import { unknownWord } from '../../base/errors.ts'
import { isThere, listFolder } from '../../base/files/files.ts'
import type { Command } from '../../base/invocation.ts'
import { isPair } from '../../base/pair.ts'
import { runKeys, type Setting } from '../../entries/settings.ts'
import { environments, textEnvironments } from '../../index.ts'
import { declarations } from '../words/declarations.ts'
import { FLAGS } from '../words/words.ts'

/** Each script calls `colonnade completion candidates` with the words up to the cursor; the last one is being typed. */
const SCRIPTS = {
  bash: `# colonnade: source <(colonnade completion bash), in ~/.bashrc
_colonnade() {
  local line="\${COMP_LINE:0:COMP_POINT}" words=()
  read -ra words <<< "$line"
  [[ $line == *[[:space:]] ]] && words+=('')
  local word="\${words[\${#words[@]}-1]}"
  local IFS=$'\\n' # Bash 3.2 has no mapfile.
  COMPREPLY=($("\${words[0]}" completion candidates "\${words[@]:1}" 2> /dev/null))
  # Bash takes what stands before = for a word of its own.
  [[ $word == *=* && $COMP_WORDBREAKS == *=* ]] && COMPREPLY=("\${COMPREPLY[@]#"\${word%"\${word##*=}"}"}")
  [[ \${#COMPREPLY[@]} == 1 && \${COMPREPLY[0]} == *= ]] && compopt -o nospace 2> /dev/null
  return 0
}
complete -o default -F _colonnade colonnade`,
  zsh: `#compdef colonnade
# colonnade: source <(colonnade completion zsh), in ~/.zshrc behind compinit
_colonnade() {
  local -a found keys
  found=("\${(@f)$("\${words[1]}" completion candidates "\${(@)words[2,CURRENT]}" 2> /dev/null)}")
  keys=("\${(@M)found:#*=}")
  found=("\${(@)found:#*=}")
  compadd -S '' -a keys
  compadd -a found
  (( $#keys + $#found )) || _files
}
compdef _colonnade colonnade`,
  fish: `# colonnade: colonnade completion fish | source, in ~/.config/fish/config.fish
function __colonnade
  set -l words (commandline -opc) (commandline -ct)
  $words[1] completion candidates $words[2..-1] 2> /dev/null
end
complete -c colonnade -a '(__colonnade)'`,
} as const

/** colonnade completion bash|zsh|fish */
export const completionCommand: Command = async ({ words, json }) => {
  const [shell, ...rest] = words
  const script = shell !== undefined && Object.hasOwn(SCRIPTS, shell) ? SCRIPTS[shell as keyof typeof SCRIPTS] : null
  if (script === null || rest.length > 0) throw unknownWord('shell', words.join(' '), Object.keys(SCRIPTS))
  if (!json) console.log(script)
  return { shell, script }
}

/** Completions of the last word. None if the words before it are wrong. */
export async function candidates(words: readonly string[]): Promise<string[]> {
  const word = words.at(-1) ?? ''
  const found = await allCandidates(words.slice(0, -1), word).catch(() => [])
  return [...new Set(found)].filter((candidate) => candidate.startsWith(word))
}

async function allCandidates(before: readonly string[], word: string): Promise<string[]> {
  const names = before.filter((each) => !each.startsWith('-') && !isPair(each))
  const [command, subject] = names[0] === 'help' ? [] : names
  if (command === undefined) return [...Object.keys(declarations), 'help', ...FLAGS.map((flag) => `--${flag}`)]
  const declared = Object.hasOwn(declarations, command) ? declarations[command] : undefined
  if (declared === undefined) return []
  const keys = await keysOf(command, subject, before)
  const [, dashes = '', key = ''] = /^(--)?([^=]+)=/.exec(word) ?? []
  if (key !== '') return valuesOf(keys.get(key)).map((value) => `${dashes}${key}=${value}`)
  const last = /^--([^=]+)$/.exec(before.at(-1) ?? '')?.[1]
  const values = last === undefined ? [] : valuesOf(keys.get(last))
  if (values.length > 0) return values
  if (word.startsWith('-')) return [...FLAGS, ...keys.keys()].map((name) => `--${name}`)
  return subject === undefined && declared.takes !== '' ? subjectsOf(declared.takes, word) : pairsOf(keys)
}

function pairsOf(keys: ReadonlyMap<string, Setting>): string[] {
  return [...keys.keys()].map((key) => `${key}=`)
}

/** The values of a setting's closed list, or known values of an open one. */
function valuesOf(setting: Setting | undefined): string[] {
  if (typeof setting?.default === 'boolean') return ['true', 'false']
  return (setting?.words ?? []).map(String)
}

/** The keys of a command, including those of the environment that it names. */
async function keysOf(
  command: string,
  subject: string | undefined,
  before: readonly string[],
): Promise<ReadonlyMap<string, Setting>> {
  const { takes, keys } = declarations[command]!
  const own = keys.flatMap(([, each]) => Object.entries<Setting>(each))
  if (takes !== '<environment>' || subject === undefined) return new Map(own)
  const texts = before.filter(isPair).map((pair) => /^(?:--)?([^=]+)=(.*)$/s.exec(pair)!.slice(1) as [string, string])
  const ofRun = [...(await runKeys(subject, Object.fromEntries(texts)))]
  const isTraining = command === 'train' || command === 'sweep'
  const those = isTraining ? ofRun : ofRun.filter(([key]) => /^(environment\.|wrappers$|policy$)/.test(key))
  return new Map([...own, ...those])
}

async function subjectsOf(takes: string, word: string): Promise<string[]> {
  if (takes === '<environment>') return [...environments, ...textEnvironments].map(({ id }) => id)
  if (!/run/.test(takes)) return takes.split('|').filter((each) => /^\w+$/.test(each))
  const folder = word.includes('/') ? dirname(`${word}.`) : '.'
  const places = folder === '.' ? ['runs', '.'] : [folder]
  return (await Promise.all(places.map(runsBelow))).flat()
}

/** The runs in a folder and one level below, as in a folder of several seeds. */
async function runsBelow(place: string): Promise<string[]> {
  const found: string[] = []
  for (const name of await listFolder(place)) {
    const path = join(place, name)
    const isRun = (each: string) => isThere(join(each, 'config.json')).catch(() => false)
    if (await isRun(path)) found.push(path)
    else if (place !== '.')
      for (const seed of await listFolder(path).catch(() => [])) {
        if (await isRun(join(path, seed))) found.push(join(path, seed))
      }
  }
  return found
}
