/**
 * A store in a bucket of S3, or of a server that speaks its protocol. Amazon's client is an optional peer: it finds the region and the
 * credentials as all of Amazon's tools do (variables, profiles, the role of a machine or a pod), so neither a setting nor a message names
 * them. The server compares each blob with its SHA-256 before it keeps it.
 */
import { environmentVariable } from '../../base/environment-variables.ts'
import { InputError, show } from '../../base/errors.ts'
import { importPackage } from '../../base/files/packages.ts'
import { BlobError, type BlobRange, checkHash, checkRange, hashOfBlob, type OwnStore, readParts } from './store.ts'

const PACKAGE = '@aws-sdk/client-s3'
/** How often the client sends a request, with pauses of up to 20 s: for about two minutes, since the server may be restarting. */
const ATTEMPTS = 12
/** How often a part is read again whose connection broke in the middle. */
const READS = 5

interface Body {
  transformToByteArray(): Promise<Uint8Array>
}

interface Answer {
  readonly Body: Body
  readonly $metadata: { readonly httpStatusCode?: number }
}

interface Listed {
  readonly Contents?: readonly { readonly Key: string }[]
  readonly NextContinuationToken?: string
}

interface Client {
  send(command: object): Promise<unknown>
  destroy(): void
}

/** The used part of the client. */
interface Sdk {
  readonly S3Client: new (options: object) => Client
  readonly PutObjectCommand: new (input: object) => object
  readonly GetObjectCommand: new (input: object) => object
  readonly DeleteObjectCommand: new (input: object) => object
  readonly ListObjectsV2Command: new (input: object) => object
}

/** An error of the client with the server's answer. */
type Refusal = Error & { readonly $metadata?: { readonly httpStatusCode?: number } }

/** The bucket and the prefix of `s3://bucket/prefix`. @throws InputError for another text. */
export function parseS3(url: string): { readonly bucket: string; readonly prefix: string } {
  const [, bucket, prefix = ''] = /^s3:\/\/([a-z\d][a-z\d.-]{1,61}[a-z\d])((?:\/[\w.-]+)*)\/?$/.exec(url) ?? []
  if (bucket !== undefined) return { bucket, prefix: prefix === '' ? '' : `${prefix.slice(1)}/` }
  throw new InputError('store', show(url.replace(/\/\/.*@/, '//…@')), 'a bucket and a prefix like s3://bucket/fleets')
}

/**
 * Opens the blobs under `s3://bucket/prefix`. `places`: where to search the client's package; default: as all optional packages.
 * @throws InputError without the package, or if the bucket cannot be listed.
 */
export async function openS3(url: string, places?: readonly string[]): Promise<OwnStore> {
  const { bucket, prefix } = parseS3(url)
  const sdk = await importPackage<Sdk>(PACKAGE, PACKAGE, places).catch((cause: Error) => {
    throw new InputError('store', cause.message, `the client of S3: npm install ${PACKAGE}`, { cause })
  })
  // Servers other than Amazon's have no host name for each bucket.
  const isOther = environmentVariable('AWS_ENDPOINT_URL_S3') !== undefined
  const client = new sdk.S3Client({ maxAttempts: ATTEMPTS, forcePathStyle: isOther })
  const store = new S3Store(sdk, client, bucket, prefix)
  await store.check()
  return store
}

class S3Store implements OwnStore {
  readonly #sdk: Sdk
  readonly #client: Client
  readonly #bucket: string
  readonly #prefix: string

  constructor(sdk: Sdk, client: Client, bucket: string, prefix: string) {
    this.#sdk = sdk
    this.#client = client
    this.#bucket = bucket
    this.#prefix = prefix
  }

  /** @throws InputError if the bucket cannot be listed. */
  async check(): Promise<void> {
    await this.#page(undefined, 1).catch((cause: Error) => {
      this.#client.destroy()
      const got = `s3://${this.#bucket}, which cannot be listed: ${cause.name}: ${cause.message}`
      throw new InputError('store', got, 'a bucket that these credentials may list', { cause })
    })
  }

  #of(hash: string): { Bucket: string; Key: string } {
    checkHash(hash)
    return { Bucket: this.#bucket, Key: `${this.#prefix}${hash}` }
  }

  async put(bytes: Uint8Array): Promise<string> {
    const hash = await hashOfBlob(bytes)
    const ChecksumSHA256 = Buffer.from(hash, 'hex').toString('base64')
    await this.#client.send(new this.#sdk.PutObjectCommand({ ...this.#of(hash), Body: bytes, ChecksumSHA256 }))
    return hash
  }

  async get(hash: string, range?: BlobRange): Promise<Uint8Array> {
    if (range !== undefined) checkRange(range)
    return readParts(hash, range, (from, length) => this.#part(hash, from, length))
  }

  async #part(hash: string, from: number, length: number): Promise<Uint8Array> {
    const input = { ...this.#of(hash), Range: `bytes=${from}-${from + length - 1}` }
    for (let left = READS; ; left--) {
      let isAnswered = false
      try {
        const answer = await this.#client.send(new this.#sdk.GetObjectCommand(input))
        const { Body: body, $metadata: told } = answer as Answer
        if (told.httpStatusCode !== 206) {
          throw new InputError(
            'store',
            `status ${told.httpStatusCode} for a range of a blob`,
            '206: a server with ranges',
          )
        }
        isAnswered = true
        return await body.transformToByteArray()
      } catch (error) {
        const status = (error as Refusal).$metadata?.httpStatusCode
        if (status === 416) return new Uint8Array(0)
        if (status === 404) throw new BlobError(hash, true)
        if (!isAnswered || left === 0) throw error
      }
    }
  }

  async drop(hash: string): Promise<void> {
    await this.#client.send(new this.#sdk.DeleteObjectCommand(this.#of(hash)))
  }

  async list(): Promise<string[]> {
    const hashes: string[] = []
    for (let token: string | undefined, isFirst = true; isFirst || token !== undefined; isFirst = false) {
      const { Contents = [], NextContinuationToken } = await this.#page(token)
      const names = Contents.map(({ Key }) => Key.slice(this.#prefix.length))
      hashes.push(...names.filter((name) => /^[\da-f]{64}$/.test(name)))
      token = NextContinuationToken
    }
    return hashes.sort()
  }

  async #page(token: string | undefined, most = 1000): Promise<Listed> {
    const input = { Bucket: this.#bucket, Prefix: this.#prefix, ContinuationToken: token, MaxKeys: most }
    return (await this.#client.send(new this.#sdk.ListObjectsV2Command(input))) as Listed
  }

  async close(): Promise<void> {
    this.#client.destroy()
  }
}
