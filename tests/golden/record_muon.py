"""Records steps of PyTorch's Muon, whose iteration is computed in f32 as ours is, and in bf16 as it comes; and AdamW's for the rest.

    python tests/golden/record_muon.py > tests/golden/muon.json        (torch 2.15.0)
"""
import inspect
import json

import torch
import torch.optim._muon as source

LR, DECAY, MOMENTUM, STEPS = 0.02, 0.1, 0.95, 4
SHAPES = {
    "model.embed_tokens.weight": (7, 6),
    "model.layers.0.self_attn.q_proj.weight": (6, 6),
    "model.layers.0.mlp.up_proj.weight": (14, 6),
    "model.layers.0.mlp.down_proj.weight": (6, 14),
    "model.layers.0.input_layernorm.weight": (6,),
}


def trained(in_bf16):
    bf16 = source._zeropower_via_newtonschulz
    text = inspect.getsource(bf16).replace("dtype=torch.bfloat16", "dtype=torch.float32")
    namespace = dict(vars(source))
    exec(text, namespace)
    if not in_bf16:
        source._zeropower_via_newtonschulz = namespace["_zeropower_via_newtonschulz"]
    generator = torch.Generator().manual_seed(5)
    random = lambda shape: torch.randn(shape, generator=generator)
    weights = {name: torch.nn.Parameter(random(shape)) for name, shape in SHAPES.items()}
    begun = {name: weight.detach().flatten().tolist() for name, weight in weights.items()}
    hidden = [weight for name, weight in weights.items() if ".layers." in name and weight.ndim == 2]
    norms = [weight for weight in weights.values() if weight.ndim == 1]
    adam = dict(lr=LR, betas=(0.9, 0.999), eps=1e-8)
    optimizers = [
        source.Muon(hidden, lr=LR, weight_decay=DECAY, momentum=MOMENTUM, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW([weights["model.embed_tokens.weight"]], weight_decay=DECAY, **adam),
        torch.optim.AdamW(norms, weight_decay=0, **adam),
    ]
    steps = []
    for _ in range(STEPS):
        gradient = {name: random(shape) * 0.1 for name, shape in SHAPES.items()}
        for name, weight in weights.items():
            weight.grad = gradient[name].clone()
        for optimizer in optimizers:
            optimizer.step()
        steps.append({
            "gradient": {name: value.flatten().tolist() for name, value in gradient.items()},
            "weights": {name: value.detach().flatten().tolist() for name, value in weights.items()},
        })
    source._zeropower_via_newtonschulz = bf16
    return {"begun": begun, "steps": steps}


f32, bf16 = trained(False), trained(True)
last = bf16["steps"][-1]["weights"]
print(json.dumps({"torch": torch.__version__, "lr": LR, "weightDecay": DECAY, "shapes": SHAPES, **f32, "bf16": last}))
