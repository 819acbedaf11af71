/** The contract of buses, in this process. */

import { busSuite } from '../support/bus-suite.ts'
import { memoryBus } from '../support/fleet-carriers.ts'

busSuite(memoryBus)
