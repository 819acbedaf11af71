import { tensorflowBinding } from '../support/tensorflow.ts'
import { networkSuite } from './network-suite.ts'

networkSuite('tfjs-node-gpu', tensorflowBinding)
