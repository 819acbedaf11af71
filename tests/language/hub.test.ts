import { createHash } from 'node:crypto'
import { existsSync, lstatSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { describe, expect, test, vi } from 'vitest'
import { InputError } from '../../src/base/errors.ts'
import { Random } from '../../src/base/random.ts'
import { type DownloadProgress, downloadModel } from '../../src/language/hub.ts'
import { loadLanguageModel } from '../../src/language/load-language-model.ts'
import { saveTransformer } from '../../src/language/transformer/folder.ts'
import { transformer } from '../../src/language/transformer/model.ts'
import { temporaryFolder } from '../support/temporary.ts'
import { folderOf } from './golden.ts'
import { COMMIT, type HubServer, send, startHub } from './hub-server.ts'

vi.stubEnv('HF_TOKEN', undefined)
vi.stubEnv('HF_HUB_OFFLINE', undefined)

const bytes = (length: number, seed: number) => Uint8Array.from({ length }, (_, i) => (i * 31 + seed * 7) % 251)
const text = (value: unknown) => new TextEncoder().encode(JSON.stringify(value))
const small = () => ({
  'README.md': text('not wanted'),
  'config.json': text({ model_type: 'llama' }),
  'tokenizer.json': bytes(5000, 1),
  'tokenizer_config.json': text({}),
  'pytorch_model.bin': bytes(5000, 2),
  'model.safetensors': bytes(200_000, 3),
})
const WEIGHTS = `/org/tiny/resolve/${COMMIT}/model.safetensors`

async function setUp(files: Record<string, Uint8Array> = small()) {
  const hub = await startHub(files)
  const cache = await temporaryFolder()
  return { hub, cache, options: { endpoint: hub.endpoint, cache }, repository: `${cache}/models--org--tiny` }
}

describe('downloadModel', () => {
  test('takes what a language model is made of, and nothing else, in the layout of the Python library', async () => {
    const { hub, options, repository } = await setUp()
    const folder = await downloadModel('org/tiny', options)
    expect(folder).toBe(`${repository}/snapshots/${COMMIT}`)
    expect(readdirSync(folder).sort()).toEqual([
      ...['config.json', 'model.safetensors', 'tokenizer.json', 'tokenizer_config.json'],
    ])
    for (const name of readdirSync(folder)) {
      expect(Uint8Array.from(readFileSync(`${folder}/${name}`))).toEqual(hub.files[name])
      expect(lstatSync(`${folder}/${name}`).isSymbolicLink()).toBe(true)
    }
    expect(readFileSync(`${repository}/refs/main`, 'utf8')).toBe(COMMIT)
    expect(readdirSync(`${repository}/blobs`).every((name) => /^[0-9a-f]+$/.test(name))).toBe(true)
  })

  test('tells how far it is, to the end of each file', async () => {
    const { options } = await setUp()
    const told: DownloadProgress[] = []
    await downloadModel('org/tiny', { ...options, onProgress: (progress) => told.push(progress) })
    const weights = told.filter(({ file }) => file === 'model.safetensors')
    expect(weights.at(-1)).toEqual({ file: 'model.safetensors', bytes: 200_000, fileBytes: 200_000 })
    expect(weights.every(({ bytes: sofar }, i) => i === 0 || sofar > weights[i - 1]!.bytes)).toBe(true)
  })

  test('what is in the cache is not downloaded again, and a commit that is whole is not even asked for', async () => {
    const { hub, options } = await setUp()
    await downloadModel('org/tiny', options)
    hub.asked.length = 0
    await downloadModel('org/tiny', options)
    expect(hub.asked.every((path) => path.startsWith('/api/'))).toBe(true)
    hub.asked.length = 0
    await downloadModel('org/tiny', { ...options, revision: COMMIT })
    expect(hub.asked).toEqual([])
  })

  test('a file that somebody cut short, or took away, is downloaded again', async () => {
    const { options } = await setUp()
    const folder = await downloadModel('org/tiny', options)
    writeFileSync(`${folder}/model.safetensors`, 'short')
    rmSync(`${folder}/config.json`)
    await downloadModel('org/tiny', { ...options, revision: COMMIT })
    expect(readFileSync(`${folder}/model.safetensors`)).toHaveLength(200_000)
    expect(existsSync(`${folder}/config.json`)).toBe(true)
  })

  test('takes all the shards of an index', async () => {
    const { 'model.safetensors': _, ...files } = small()
    const index = { weight_map: { a: 'model-1.safetensors', b: 'model-2.safetensors', c: 'model-1.safetensors' } }
    const { hub, options } = await setUp({
      ...files,
      'model.safetensors.index.json': text(index),
      'model-1.safetensors': bytes(3000, 4),
      'model-2.safetensors': bytes(3000, 5),
    })
    const folder = await downloadModel('org/tiny', options)
    expect(readdirSync(folder).filter((name) => name.startsWith('model'))).toHaveLength(3)
    delete hub.files['model-2.safetensors']
    await expect(downloadModel('org/tiny', { ...options, cache: await temporaryFolder() })).rejects.toThrow(
      /no model-2.safetensors/,
    )
  })

  test('an index that points out of the folder is refused', async () => {
    const { 'model.safetensors': _, ...files } = small()
    const index = text({ weight_map: { a: '../../etc/passwd' } })
    const { options } = await setUp({ ...files, 'model.safetensors.index.json': index })
    await expect(downloadModel('org/tiny', options)).rejects.toThrow(/weight_map: got "..\/..\/etc\/passwd"/)
  })
})

describe('a hub that fails', () => {
  test('a body that ends early is continued from where it ended', async () => {
    const { hub, options } = await setUp()
    const cut = cutting(hub, 2)
    const folder = await downloadModel('org/tiny', { ...options, onProgress: cut.onProgress })
    expect(Uint8Array.from(readFileSync(`${folder}/model.safetensors`))).toEqual(hub.files['model.safetensors'])
    const ranges = hub.asked.filter((path) => path.startsWith(WEIGHTS)).map((path) => path.split(' ')[1])
    expect(ranges).toEqual([undefined, 'bytes=50000-', 'bytes=100000-'])
  })

  test('a download that was given up has no file in the snapshot, and goes on when it is asked for again', async () => {
    const { hub, options, repository } = await setUp()
    const cut = cutting(hub, 1)
    const controller = new AbortController()
    const onProgress = (progress: DownloadProgress) => {
      if (progress.bytes === 50_000) controller.abort()
      else cut.onProgress(progress)
    }
    await expect(downloadModel('org/tiny', { ...options, signal: controller.signal, onProgress })).rejects.toThrow(
      /^model org\/tiny: got a download that was aborted .*the downloaded part is kept and continued$/,
    )
    expect(existsSync(`${repository}/snapshots/${COMMIT}/model.safetensors`)).toBe(false)
    await expect(downloadModel('org/tiny', { ...options, offline: true })).rejects.toThrow(/no complete copy/)
    hub.fault = null
    hub.asked.length = 0
    await downloadModel('org/tiny', options)
    expect(hub.asked).toContain(`${WEIGHTS} bytes=50000-`)
  })

  test('a server that never sends more is given up, with what has come', async () => {
    const { hub, options } = await setUp()
    hub.fault = (request, response) => {
      if (request.url === WEIGHTS) response.destroy()
      return request.url === WEIGHTS
    }
    await expect(downloadModel('org/tiny', options)).rejects.toThrow(/0 of 200000 bytes|no answer/)
  })

  test('a server without ranges sends the whole again, and nothing is there twice', async () => {
    const { hub, options } = await setUp()
    let isCut = false
    hub.fault = (request, response) => {
      if (request.url !== WEIGHTS) return false
      const file = hub.files['model.safetensors']!
      response.writeHead(200, { 'content-length': file.length })
      if (isCut) response.end(file)
      else response.write(file.subarray(0, 60_000), () => response.socket!.end())
      isCut = true
      return true
    }
    const folder = await downloadModel('org/tiny', options)
    expect(readFileSync(`${folder}/model.safetensors`)).toHaveLength(200_000)
  })

  test.each(['model.safetensors', 'config.json'])('%s with another checksum is thrown away', async (name) => {
    const { hub, options, repository } = await setUp()
    hub.fault = (request, response) => {
      if (!request.url!.endsWith(`resolve/${COMMIT}/${name}`)) return false
      const wrong = Uint8Array.from(hub.files[name]!)
      wrong[wrong.length >> 1]! ^= 1
      send(request, response, wrong)
      return true
    }
    await expect(downloadModel('org/tiny', options)).rejects.toThrow(
      /checksum .*as the hub announced; the file was deleted/,
    )
    expect(existsSync(`${repository}/snapshots/${COMMIT}/${name}`)).toBe(false)
    expect(readdirSync(`${repository}/blobs`).filter((blob) => blob.endsWith('.incomplete'))).toEqual([])
  })

  test('a server that is busy for a moment is asked again', async () => {
    const { hub, options } = await setUp()
    let busy = 1
    hub.fault = (request, response) => {
      if (request.url !== WEIGHTS || busy-- <= 0) return false
      response.writeHead(503).end('busy')
      return true
    }
    await downloadModel('org/tiny', options)
    expect(hub.asked.filter((path) => path === WEIGHTS)).toHaveLength(2)
  })

  test.each([
    [401, /status 401 .*HF_TOKEN/],
    [403, /status 403 .*accepting their terms/],
    [404, /status 404 .*a model, revision and file that exist/],
  ])('%s is an error that says what to do', async (status, expected) => {
    const { hub, options } = await setUp()
    hub.fault = (_, response) => {
      response.writeHead(status).end('no')
      return true
    }
    const answer = downloadModel('org/tiny', options)
    await expect(answer).rejects.toThrow(InputError)
    await expect(answer).rejects.toThrow(expected)
  })

  test('no answer says so, and names offline', async () => {
    const { hub, options } = await setUp()
    await hub.close()
    await expect(downloadModel('org/tiny', options)).rejects.toThrow(/no answer .*ECONNREFUSED.*offline: true/)
  })

  test('answers that are no commit, no list and no checksum are refused', async () => {
    const { hub, options } = await setUp()
    const answering = (part: string, answer: unknown) => {
      hub.fault = (request, response) => {
        if (!request.url!.includes(part)) return false
        response.end(JSON.stringify(answer))
        return true
      }
      return downloadModel('org/tiny', options)
    }
    await expect(answering('/revision/', { sha: '../../x' })).rejects.toThrow(/sha: got "..\/..\/x"/)
    await expect(answering('/tree/', { error: 1 })).rejects.toThrow(/a list of files/)
    const entries = [{ type: 'file', path: 'config.json', size: 3, oid: '../x' }]
    await expect(answering('/tree/', entries)).rejects.toThrow(/config.json: .*with size and checksum/)
  })
})

/** Breaks the connection off, that many times, when 50,000 further bytes of the weights have come. */
function cutting(hub: HubServer, times: number) {
  let cuts = 0
  let limit = 0
  let off = () => {}
  hub.fault = (request, response) => {
    if (request.url !== WEIGHTS || cuts >= times) return false
    cuts++
    const file = hub.files['model.safetensors']!
    const start = Number(/\d+/.exec(request.headers.range ?? '0')![0])
    response.writeHead(start > 0 ? 206 : 200, {
      'content-length': file.length - start,
      ...(start > 0 ? { 'content-range': `bytes ${start}-${file.length - 1}/${file.length}` } : {}),
    })
    limit = start + 50_000
    off = () => response.destroy()
    response.write(file.subarray(start, limit))
    return true
  }
  return {
    onProgress({ file, bytes: sofar }: DownloadProgress) {
      if (file === 'model.safetensors' && sofar === limit) off()
    },
  }
}

describe('what may be asked', () => {
  test('offline takes what was downloaded before, by its branch or commit, and asks nobody', async () => {
    const { hub, options } = await setUp()
    const offline = { ...options, offline: true }
    await expect(downloadModel('org/tiny', offline)).rejects.toThrow(/no complete copy .*offline is set/)
    const folder = await downloadModel('org/tiny', options)
    await hub.close()
    expect(await downloadModel('org/tiny', offline)).toBe(folder)
    expect(await downloadModel('org/tiny', { ...offline, revision: COMMIT })).toBe(folder)
    rmSync(`${folder}/tokenizer.json`)
    await expect(downloadModel('org/tiny', offline)).rejects.toThrow(/no complete copy/)
  })

  test('a token goes to the hub, and not to where the hub sends on', async () => {
    const { hub, options } = await setUp()
    const seen: (string | undefined)[] = []
    const elsewhere = createServer((request, response) => {
      seen.push(request.headers.authorization)
      send(request, response, hub.files['model.safetensors']!)
    })
    await new Promise<void>((resolve) => elsewhere.listen(0, '127.0.0.1', resolve))
    hub.fault = (request, response) => {
      if (request.url !== WEIGHTS) return false
      response.writeHead(302, { location: `http://127.0.0.1:${(elsewhere.address() as AddressInfo).port}/x` }).end()
      return true
    }
    await downloadModel('org/tiny', { ...options, token: 'hf_secret' })
    elsewhere.closeAllConnections()
    elsewhere.close()
    expect(new Set(hub.tokens)).toEqual(new Set(['Bearer hf_secret']))
    expect(seen).toEqual([undefined])
  })

  test('a token goes to no other host, whoever names it, and a list that goes on elsewhere is refused', async () => {
    const { hub, options } = await setUp()
    const seen: (string | undefined)[] = []
    const elsewhere = createServer((request, response) => {
      seen.push(request.headers.authorization)
      response.end('[]')
    })
    await new Promise<void>((resolve) => elsewhere.listen(0, '127.0.0.1', resolve))
    const away = `http://127.0.0.1:${(elsewhere.address() as AddressInfo).port}/x`
    hub.fault = (request, response) => {
      if (!request.url!.includes('/tree/')) return false
      response.writeHead(200, { link: `<${away}>; rel="next"` }).end('[]')
      return true
    }
    const loading = () => downloadModel('org/tiny', { ...options, token: 'hf_secret' })
    await expect(loading()).rejects.toThrow(/got (a next page at|an empty page)/)
    hub.fault = (request, response) => {
      if (!request.url!.includes('/tree/')) return false
      const entries = [{ type: 'file', path: 'a', size: 3, oid: 'a'.repeat(40) }]
      response.writeHead(200, { link: `<${away}>; rel="next"` }).end(JSON.stringify(entries))
      return true
    }
    await expect(loading()).rejects.toThrow(/a next page at "http:.*expected a new one on the same hub/)
    hub.fault = (request, response) => {
      if (!request.url!.includes('/tree/')) return false
      response.writeHead(200, { link: `<${request.url}>; rel="next"` }).end('[{"type":"directory"}]')
      return true
    }
    await expect(loading()).rejects.toThrow(/expected a new one on the same hub/)
    hub.fault = (request, response) => {
      if (request.url !== WEIGHTS) return false
      response.writeHead(302, { location: 'file:///etc/passwd' }).end()
      return true
    }
    await expect(loading()).rejects.toThrow(/a redirect to "file:\/\/\/etc\/passwd"/)
    elsewhere.closeAllConnections()
    elsewhere.close()
    expect(seen).toEqual([])
  })

  test('a list of nonsense is an InputError', async () => {
    const { hub, options } = await setUp()
    const nonsense = [
      '[null]',
      '[1]',
      '[{"type":"file"}]',
      '{',
      '[{"type":"file","path":"a","lfs":3}]',
      '"a"',
      '\u0000',
    ]
    for (const text of [...nonsense, `[{"type":"file","path":"a/../b","size":1,"oid":"${'a'.repeat(40)}"}]`]) {
      hub.fault = (request, response) => {
        if (!request.url!.includes('/tree/')) return false
        response.end(text)
        return true
      }
      await expect(downloadModel('org/tiny', options), text).rejects.toThrow(InputError)
    }
    await expect(downloadModel('org/tiny', { ...options, endpoint: 'nonsense' })).rejects.toThrow(/^endpoint: got/)
  })

  test('a body that is longer than promised is broken off, and a list that does not end too', async () => {
    const { hub, options, repository } = await setUp()
    const size = hub.files['model.safetensors']!.length
    let sent = 0
    const flood = (response: ServerResponse): boolean => {
      const more = (): void => {
        if (response.destroyed || sent > 2 ** 30) return
        sent += 2 ** 20
        response.write(Buffer.alloc(2 ** 20, 0x20), more)
      }
      more()
      return true
    }
    hub.fault = (request, response) => request.url === WEIGHTS && flood(response)
    await expect(downloadModel('org/tiny', options)).rejects.toThrow(`got more than ${size} bytes, expected as many as`)
    const blob = createHash('sha256').update(hub.files['model.safetensors']!).digest('hex')
    expect(readFileSync(`${repository}/blobs/${blob}.incomplete`).length).toBe(0)
    hub.fault = (request, response) => request.url!.includes('/tree/') && flood(response)
    await expect(downloadModel('org/tiny', options)).rejects.toThrow(/got more than 67108864 bytes/)
    expect(sent).toBeLessThan(2 ** 29)
  })

  test('a file in the cache is compared with its checksum, and downloaded again where it differs', async () => {
    const { hub, options } = await setUp()
    const folder = await downloadModel('org/tiny', options)
    const path = `${folder}/model.safetensors`
    const whole = readFileSync(path)
    const damaged = Uint8Array.from(whole)
    damaged[100]! ^= 1
    writeFileSync(path, damaged)
    const pinned = { ...options, revision: COMMIT }
    await expect(downloadModel('org/tiny', { ...pinned, offline: true })).rejects.toThrow(/no complete copy/)
    expect(readFileSync(`${await downloadModel('org/tiny', pinned)}/model.safetensors`).equals(whole)).toBe(true)
    writeFileSync(join(options.cache, 'models--org--tiny/colonnade', `${COMMIT}.json`), '{"files":[{"path":"../x"}]}')
    await expect(downloadModel('org/tiny', pinned)).rejects.toThrow(/a list of paths, sizes and checksums/)
    expect(hub.asked.length).toBeGreaterThan(0)
  })

  test('ids and revisions that are none are refused before anybody is asked', async () => {
    const { hub, options } = await setUp()
    for (const id of ['a/b/c', '../x', 'a b', '', 'a/..']) {
      await expect(downloadModel(id, options)).rejects.toThrow(/^model: got/)
    }
    await expect(downloadModel('org/tiny', { ...options, revision: '../main' })).rejects.toThrow(/^revision: got/)
    expect(hub.asked).toEqual([])
  })

  test('a repository without safetensors or tokenizer.json is refused before anything is downloaded', async () => {
    for (const name of ['model.safetensors', 'tokenizer.json'] as const) {
      const { [name]: _, ...files } = small()
      const { hub, options } = await setUp(files)
      await expect(downloadModel('org/tiny', options)).rejects.toThrow(new RegExp(`no ${name}`))
      expect(hub.asked.some((path) => path.includes('/resolve/'))).toBe(false)
    }
  })
})

describe('loadLanguageModel', () => {
  async function tiny(vocabulary = 425) {
    const folder = await temporaryFolder()
    const model = transformer({
      model_type: 'llama',
      vocab_size: vocabulary,
      hidden_size: 8,
      num_hidden_layers: 1,
      num_attention_heads: 2,
      intermediate_size: 8,
      max_position_embeddings: 32,
      rms_norm_eps: 1e-5,
      rope_theta: 10_000,
    })
    const weights = new Float32Array(model.numParameters)
    model.initialize(weights, new Random(1), 0)
    await saveTransformer(folder, model, weights)
    for (const name of ['tokenizer.json', 'tokenizer_config.json', 'generation_config.json']) {
      writeFileSync(`${folder}/${name}`, readFileSync(`${folderOf('qwen2')}/${name}`))
    }
    return { folder, weights }
  }

  test('a folder and its copy on the hub are the same model', async () => {
    const { folder, weights } = await tiny()
    const local = await loadLanguageModel(folder)
    const files = readdirSync(folder).map((name) => [name, Uint8Array.from(readFileSync(`${folder}/${name}`))])
    const { options } = await setUp(Object.fromEntries(files))
    const fromHub = await loadLanguageModel('org/tiny', options)
    for (const { weights: read, tokenizer } of [local, fromHub]) {
      expect(read).toEqual(weights)
      expect(tokenizer.decode(tokenizer.encode('Hi 😀'))).toBe('Hi 😀')
      expect(tokenizer.endIds).toHaveLength(2)
    }
    expect(fromHub.tokenizer.id).toBe(local.tokenizer.id)
  })

  test('a tokenizer of another model is refused', async () => {
    const { folder } = await tiny(400)
    await expect(loadLanguageModel(folder)).rejects.toThrow(/ids below the 400 tokens of the model/)
  })

  test('a folder that is not there is not taken for an id', async () => {
    await expect(loadLanguageModel('./models/none')).rejects.toThrow(/no folder .\/models\/none/)
  })
})
