"""
The supervised and the reinforcement learning recipe of Tinker's cookbook against a service of ours. The recipes are as published; only
the data sets and the names of models, which come from the Hugging Face hub, are replaced by what is here. Prints figures as JSON.

    python recipes.py URL MODEL_FOLDER LOG_FOLDER [sl|rl]
"""

import json
import os
import sys

os.environ.setdefault("TINKER_API_KEY", "tml-local")
import datasets
from tinker_cookbook import model_info

url, folder, logs, which = sys.argv[1:5]
model_info.get_recommended_renderer_name = lambda _: "role_colon"
question = [f"What is {a} + {b}?" for a in range(8) for b in range(8)]
answer = [f"It is {a + b}. #### {a + b}" for a in range(8) for b in range(8)]



def load_dataset(name, *_):
    if "gsm8k" in name:
        rows = {"question": question, "answer": answer}
    else:
        talk = [
            [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]
            for asked, said in zip(question, answer, strict=True)
        ]
        rows = {"messages": talk}
    return datasets.DatasetDict(train=datasets.Dataset.from_dict(rows))


datasets.load_dataset = load_dataset
shared = {"base_url": url, "model_name": folder, "log_path": f"{logs}/{which}", "lora_rank": 8, "save_every": 3}
if which == "sl":
    from tinker_cookbook.recipes import sl_loop as recipe

    config = recipe.Config(**shared, batch_size=4, max_length=256, learning_rate=1e-2)
else:
    from tinker_cookbook.recipes import rl_loop as recipe

    # The random model here solves nothing: an answer is one token, and right where it begins with a small letter.
    recipe.get_reward = lambda response, _: float(response[:1].islower())
    config = recipe.Config(**shared, batch_size=4, group_size=16, max_tokens=1, learning_rate=1e-2)
recipe.main(config)
with open(f"{logs}/{which}/metrics.jsonl") as file:
    print(json.dumps([json.loads(line) for line in file]))
