/** Elo ratings of players by the games that they have played. */

/** A game: 1 if the first player won, 0 if the second did, ½ for a draw. */
export interface Game {
  readonly first: number
  readonly second: number
  readonly score: number
}

/** Points by which a player is rated higher who scores ten times as often as the other (Elo, "The Rating of Chessplayers", 1978). */
const SCALE = 400
const ROUNDS = 2000

/**
 * The ratings under which the games are most likely, each player with one draw more against one of rating 0, which keeps those finite who
 * won all games. A player is expected to score 1 / (1 + 10^(−d / 400)) against one who is rated d points lower.
 */
export function ratingsOf(games: readonly Game[], numPlayers: number): number[] {
  const strength = new Float64Array(numPlayers).fill(1) // 10^(rating / 400), by Hunter's iteration for Bradley and Terry's model.
  const scored = new Float64Array(numPlayers).fill(1 / 2)
  for (const { first, second, score } of games) {
    scored[first]! += score
    scored[second]! += 1 - score
  }
  const met = Array.from({ length: numPlayers }, () => new Float64Array(numPlayers))
  for (const { first, second } of games) {
    met[first]![second]!++
    met[second]![first]!++
  }
  for (let round = 0; round < ROUNDS; round++) {
    for (let player = 0; player < numPlayers; player++) {
      let weight = 1 / (strength[player]! + 1)
      for (let other = 0; other < numPlayers; other++) {
        if (met[player]![other]! > 0) weight += met[player]![other]! / (strength[player]! + strength[other]!)
      }
      strength[player] = scored[player]! / weight
    }
  }
  return Array.from(strength, (each) => SCALE * Math.log10(each))
}
