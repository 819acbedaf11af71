/** What starts threads of lanes: a training loads it when it has several, so a page with one thread loads none of it. */
export { lanesOrders, type OrderedTraining } from './lanes-orders.ts'
export { endWhenDropped, Team } from './team.ts'
