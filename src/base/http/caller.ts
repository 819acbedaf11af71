/**
 * Admits programs and the server's own pages, not other sites'. A page of another site can send requests to any address
 * that its browser reaches, and can point its own name at this machine (DNS rebinding). The browser reveals both in
 * headers that pages cannot change.
 */
import type { IncomingMessage } from 'node:http'
import { hostname } from 'node:os'
import { show } from '../errors.ts'
import { RequestError } from './request-error.ts'

const HOST = /^(\[[\da-f:.]+\]|[\w.-]+)(:\d{1,5})?$/i
/** This machine's own names; Docker's name for it leads containers to servers on 127.0.0.1. */
const THIS_MACHINE = /^(127(\.\d{1,3}){3}|localhost|\[::1\]|host\.docker\.internal)$/
/** Hosts that cannot be registered publicly: IP addresses, names without a dot, and domains of local networks. */
const UNREGISTERED = /^(\d{1,3}(\.\d{1,3}){3}|\[[\da-f:.]+\]|[\w-]+|.*\.(local|localhost|internal))$/

/** Whether a server that listens at an address is reached from this machine alone. Docker's name for it may be that of its network card. */
export const isThisMachine = (address: string): boolean =>
  /^(127(\.\d{1,3}){3}|localhost|::1)$/.test(address.toLowerCase())

/** Checks the headers of requests to a server that listens at an address. */
export function callerCheck(address: string): (request: IncomingMessage, isPage: boolean) => void {
  const own = (address.includes(':') ? `[${address}]` : address).toLowerCase()
  const isLocal = THIS_MACHINE.test(own)
  const names = isLocal ? THIS_MACHINE : UNREGISTERED
  const expected = isLocal ? 'a name of this machine, like localhost' : 'an IP address, a name without a dot, or host='

  const checkHost = ({ headersDistinct }: IncomingMessage): string => {
    const [host, ...others] = headersDistinct.host ?? []
    const name = host !== undefined && others.length === 0 ? HOST.exec(host)?.[1]?.toLowerCase() : undefined
    if (host === undefined || name === undefined) {
      throw new RequestError(400, `Host: got ${show(headersDistinct.host?.join(', '))}, expected one name`)
    }
    if (names.test(name) || name === own || (!isLocal && name === hostname().toLowerCase())) return host.toLowerCase()
    throw new RequestError(403, `Host: got ${show(host)}, expected ${expected}`)
  }

  return (request, isPage) => {
    const host = checkHost(request)
    const { origin, 'sec-fetch-site': site = 'none' } = request.headers
    if (origin !== undefined && origin.toLowerCase().replace(/^https?:\/\//, '') !== host) {
      throw new RequestError(
        403,
        `Origin: got ${show(origin)}, expected none: pages of other sites may not send requests`,
      )
    }
    // Other sites may link to a page.
    if (isPage || site === 'none' || site === 'same-origin') return
    throw new RequestError(
      403,
      `Sec-Fetch-Site: got ${show(site)}, expected none: pages of other sites may not send requests`,
    )
  }
}
