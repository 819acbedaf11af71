/** All environment variables that Colonnade reads. */

export const environmentVariables = {
  COLONNADE_GATEWAY_KEY: "the operator's key of `gateway`; agents do not get it",
  COLONNADE_SERVE_KEY: 'the key that clients of `serve` send',
  COLONNADE_CONTROL_KEY: 'the key for the control routes of `serve`',
  COLONNADE_NATS_CREDENTIALS: 'the file of credentials for the NATS server of a fleet (`.creds`)',
  COLONNADE_NATS_USER: 'the user of the NATS server of a fleet',
  COLONNADE_NATS_PASSWORD: 'the password of that user',
  COLONNADE_NATS_TOKEN: 'the token of the NATS server of a fleet',
  COLONNADE_NATS_CA: 'the PEM file of the authority that signed the certificate of the NATS server of a fleet',
  AWS_ENDPOINT_URL_S3: "the server of `store=s3://…`, if it is not Amazon's",
  HF_TOKEN: 'the token of the Hugging Face hub, for pushing and for private repositories',
  HF_ENDPOINT: "the hub's address; by default https://huggingface.co",
  HF_HUB_CACHE: 'the folder for downloads from the hub; by default `hub` in HF_HOME',
  HF_HOME: "the hub's own folder; by default `~/.cache/huggingface`, as for its Python library",
  HF_HUB_OFFLINE: '1: use earlier downloads only, without requests to the hub',
  MLFLOW_TRACKING_TOKEN: 'the token of the server that `loggers=mlflow:URL` names',
  TRACKIO_WRITE_TOKEN: 'the token of the server that `loggers=trackio:URL` names',
  XDG_CONFIG_HOME: 'the folder of the list of trusted modules; by default APPDATA, or else `~/.config`',
  APPDATA: 'the same on Windows',
  NO_COLOR: 'any value: no colors in the terminal',
  FORCE_COLOR: 'colors even without a terminal; 0 or false: no colors',
  TERM: '`dumb`: no changing progress line while a training runs',
} as const satisfies Readonly<Record<string, string>>

/** The value of a variable; undefined if it is not set. */
export function environmentVariable(name: keyof typeof environmentVariables): string | undefined {
  return process.env[name]
}

/** The value of the variable that a setting names (`apiKeyVariable`), so that no file contains the key. */
export function namedVariable(name: string): string | undefined {
  return process.env[name]
}

/** This process's variables without Colonnade's keys, for programs that it starts. */
export function variablesForOthers(): NodeJS.ProcessEnv {
  const {
    COLONNADE_GATEWAY_KEY: _,
    COLONNADE_SERVE_KEY: _serve,
    COLONNADE_CONTROL_KEY: _control,
    COLONNADE_NATS_PASSWORD: _password,
    COLONNADE_NATS_TOKEN: _token,
    ...others
  } = process.env
  return others
}
