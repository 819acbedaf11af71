"""
Trains by Tinker's SDK, and goes on from the last saved state whenever the service has gone away. Prints each step's loss, and how
often it went on.

    python kills.py URL MODEL_FOLDER STEPS SEED
"""

import sys

import tinker
from tinker import types

url, folder, steps, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
data = [
    types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": types.TensorData(data=tokens[1:], dtype="int64", shape=[len(tokens) - 1]),
            "weights": types.TensorData(data=[1.0] * (len(tokens) - 1), dtype="float32", shape=[len(tokens) - 1]),
        },
    )
    for tokens in ([seed, 2, 3, 4, 5], [9, 8, 7, 6, seed, 4])
]
path, step = None, 0
while step < steps:
    try:
        service = tinker.ServiceClient(base_url=url, api_key="tml-local")
        if path is None:
            client = service.create_lora_training_client(base_model=folder, rank=4, seed=seed).result()
        else:
            client = service.create_training_client_from_state_with_optimizer(path).result()
        while step < steps:
            passed = client.forward_backward(data, "cross_entropy")
            client.optim_step(types.AdamParams(learning_rate=1e-2))
            saved = client.save_state(f"step-{step}", overwrite=True).result().path
            path = saved
            print("step", step, passed.result().metrics["loss:sum"], flush=True)
            step += 1
    except Exception as error:  # Whatever a service that was killed comes to.
        print("again", step, type(error).__name__, str(error)[:80].replace("\n", " "), flush=True)
"""The process may end with requests under way."""
