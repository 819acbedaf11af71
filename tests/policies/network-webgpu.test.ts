import { webgpuSwiftShader } from '../support/swiftshader.ts'
import { networkSuite } from './network-suite.ts'

networkSuite('webgpu', webgpuSwiftShader)
