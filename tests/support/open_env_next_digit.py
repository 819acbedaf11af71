"""An environment of OpenEnv on its own server: the answer to a digit is the next one. Words: port, sessions at once."""
import sys
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
import uvicorn


class Guess(Action):
    message: str


class Seen(Observation):
    prompt: str


class NextDigit(Environment):
    """The answer to a digit is the next one."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self._digit = 0
        self._state = State(episode_id="", step_count=0)

    def reset(self, seed=None, episode_id=None, **kwargs):
        self._digit = seed or 0
        return Seen(prompt=str(self._digit), done=False, reward=None)

    def step(self, action, timeout_s=None, **kwargs):
        right = action.message.startswith(str(self._digit + 1))
        return Seen(prompt="no", done=True, reward=right, metadata={"truncated": False})

    @property
    def state(self):
        return self._state


app = create_app(NextDigit, Guess, Seen, env_name="next-digit", max_concurrent_envs=int(sys.argv[2]))
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
