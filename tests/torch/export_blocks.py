"""Makes tests/data/blocks.onnx: four residual blocks by torch.export, of whose records the modules' paths stay."""
import sys

import onnx
import torch


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.up = torch.nn.Linear(16, 32)
        self.down = torch.nn.Linear(32, 16)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Block() for _ in range(4))
        self.head = torch.nn.Linear(16, 5)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


torch.manual_seed(0)
program = torch.onnx.export(Net(), (torch.randn(64, 16),), dynamo=True, input_names=["x"], output_names=["y"],
                            verbose=False)
model = program.model_proto
for node in model.graph.node:
    kept = [p for p in node.metadata_props if p.key == "pkg.torch.onnx.name_scopes"]
    del node.metadata_props[:]
    node.metadata_props.extend(kept)
    node.doc_string = ""
del model.graph.value_info[:]
for value in [*model.graph.input, *model.graph.output, *model.graph.initializer]:
    del value.metadata_props[:]
onnx.save(model, sys.argv[1])
