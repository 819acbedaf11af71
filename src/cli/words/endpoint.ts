/** Settings of servers: TLS from files, and the treatment of unknown fields. */
import { readFile } from 'node:fs/promises'
import { boolean, text } from '../../entries/settings.ts'
import { InputError } from '../../index.ts'

export const endpointKeys = {
  strict: boolean(false, 'refuse requests with unknown fields; otherwise ignore and count those fields'),
  tlsCert: text('', 'PEM file with a certificate, for TLS; empty: plain HTTP'),
  tlsKey: text('', 'PEM file with its private key'),
}

/** The certificate and its key. @throws InputError if one of them is missing or cannot be read. */
export async function readTls(cert: string, key: string): Promise<{ tls?: { cert: string; key: string } }> {
  if (cert === '' && key === '') return {}
  if (cert === '' || key === '') throw new InputError('tlsCert and tlsKey', 'one of the two', 'both, or neither')
  const read = (name: string, path: string) =>
    readFile(path, 'utf8').catch((cause: Error) => {
      throw new InputError(name, `${path} (${cause.message})`, 'a file in PEM', { cause })
    })
  return { tls: { cert: await read('tlsCert', cert), key: await read('tlsKey', key) } }
}
