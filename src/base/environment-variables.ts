/** The environment variables that Colonnade reads: all of them, each by its name here. */

/** What each is for. */
export const environmentVariables = {
  COLONNADE_GATEWAY_KEY: "the operator's key of `gateway`; agents are not given it",
  COLONNADE_SERVE_KEY: 'the key that clients of `serve` show',
  COLONNADE_CONTROL_KEY: 'the key that whoever controls `serve` shows',
  HF_TOKEN: 'the token of the Hugging Face hub, to push and to read what is not public',
  HF_ENDPOINT: "the hub's address; by default https://huggingface.co",
  HF_HUB_CACHE: 'the folder of downloads from the hub; by default `hub` in HF_HOME',
  HF_HOME: "the hub's own folder; by default `~/.cache/huggingface`, as for its Python library",
  HF_HUB_OFFLINE: '1: only earlier downloads are used, and the hub is not asked',
  MLFLOW_TRACKING_TOKEN: 'the token of the server that `loggers=mlflow:URL` names',
  TRACKIO_WRITE_TOKEN: 'the token of the server that `loggers=trackio:URL` names',
  XDG_CONFIG_HOME: 'the folder of the list of trusted modules; by default APPDATA, or else `~/.config`',
  APPDATA: 'the same on Windows',
  NO_COLOR: 'set to anything: no colors in the terminal',
  FORCE_COLOR: 'colors also where there is no terminal; 0 or false: none',
  TERM: '`dumb`: no line that changes while a training runs',
} as const satisfies Readonly<Record<string, string>>

/** The value of one of them; undefined where it is not set. */
export function environmentVariable(name: keyof typeof environmentVariables): string | undefined {
  return process.env[name]
}

/** That of a variable whose name a setting gives (`apiKeyVariable`), so that it holds a key that is written nowhere. */
export function namedVariable(name: string): string | undefined {
  return process.env[name]
}

/** All variables of this process but those that are Colonnade's alone: for programs that it starts. */
export function variablesForOthers(): NodeJS.ProcessEnv {
  const {
    COLONNADE_GATEWAY_KEY: _,
    COLONNADE_SERVE_KEY: _serve,
    COLONNADE_CONTROL_KEY: _control,
    ...others
  } = process.env
  return others
}
