#!/bin/bash
# concepts.sh -- writes docs/concepts.md: what is said of recomputation, each with a command that shows it and what
# the command printed.  Usage, in the repository's folder: docs/concepts.sh [CKC] >docs/concepts.md
set -eu
ckc=$(realpath "${1:-build/release/ckc}")
examples=$(realpath examples)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin"
ln -s "$ckc" "$folder/bin/ckc"
PATH=$folder/bin:$PATH
cd "$folder"
for model in decoder mlp resnet18; do ln -s "$examples/$model/model.onnx" $model.onnx; done
ln -s "$examples/trace4/trace4.dag" .

# A chain of N layers that are one tensor each: the backward pass of a layer reads the layer's input.
chain()
{
    seq "$1" | awk -v n="$1" '
        BEGIN { print "loss", n }
        { print $1, 1, 1, ($1 > 1 ? $1 - 1 : "") }
        END { for (i = n; i >= 1; i--)
                  print 2 * n + 1 - i, 2, 1, (i < n ? 2 * n - i : n), (i > 1 ? i - 1 : ""), (i < n ? "; inplace=" 2 * n - i : "") }' \
        >"chain$1.dag"
}

text() { printf '\n%s\n' "$*"; }
show()
{
    printf '\n    $ %s\n' "$1"
    eval "$1" 2>&1 | sed 's/^/    /; s/ *$//'
}

plan="decoder.onnx --bind batch=64,seq=256 --device h200 --offload no"

cat <<'END'
# What is said of recomputation, and what ckc shows

Made by `docs/concepts.sh`: every block is a command and what it printed, shortened where a pipe says so. `decoder.onnx`, `resnet18.onnx` and `mlp.onnx` are the models of
`examples/`. Plans are for an H200, that was not there: bytes are exact, times are predicted from its numbers, and 1.00 GB of each budget is the driver's. What runs,
runs on this machine's processor.
END

text '## Memory

**Activations, not weights, fill memory.** It depends on the batch: of one sample it is half, of 64 nearly all.'
show "ckc plan ${plan/batch=64/batch=1} | grep -A6 'at the peak'"
show "ckc plan $plan | grep -A6 'at the peak'"
text '**How much is saved?** Of activations and of everything are two answers: the table of `ckc compare` has both. `ratio=0.25` wraps one layer in four, as `checkpoint_ratio` does.
The activations fall by less than a quarter, as wrapped layers still keep their inputs.'
show "ckc compare $plan --budget 100% --policy keep-all --policy ratio=0.25 --policy ratio=0.5 --policy ratio=0.75 | sed -n 4,8p"
text '**Recomputation is not enough for every model.** What lives through the step is there in any plan; a budget below is refused with the least that works, and what holds it.'
show "ckc plan $plan --budget 1.2GB 2>&1 | cut -d';' -f1 | fold -sw 100"

text '## Forget, and compute again

**The same gradients.** With dropout, after two steps, all gradients, outputs and the loss are the same bits, whatever was recomputed.'
tiny="decoder.onnx --bind batch=16,seq=64 --init normal:0.02 --optimizer sgd --steps 2 --device cpu"
show "ckc $tiny --grads all.npz | grep -E '^(memory|recomputed|loss)'"
show "ckc $tiny --budget 75% --grads less.npz | grep -E '^(memory|recomputed|loss)'"
show "cmp all.npz less.npz && echo the same bits"
text '**Four layers by hand.** Every number is counted in [examples/trace4](../examples/trace4/README.md): segments of two need more memory than single layers and redo as much; the last segment should
be stored; one segment of all saves nothing.'
show "ckc compare trace4.dag --policy keep-all --policy every-1 --policy every-2 --policy segments=1-2 --policy segments=1,2,3 --policy segments=1,3 --policy segments=1-4 --policy ckc | sed -n 4,12p"
text '**Every N layers is a dial.** Of memory, best where a segment's inner tensors and the kept results balance, here at one layer; hardly of time: any spacing redoes about one forward pass, a third of the step at most. Spacing
checkpoints wider does not make training faster; storing whole layers does, and choosing by operators does more.'
show "ckc compare $plan --policy keep-all --policy every-1 --policy every-2 --policy every-3 --policy every-4 --policy every-8 --policy ckc | sed -n 4,11p"
text '**A note every tenth step.** Of fifty, with notes behind every tenth: the last stretch runs again, then backwards through it, then the stretch before. The numbers are steps, from 51 on backward ones.'
chain 50
show "ckc solve chain50.dag --budget 100% --policy every-10 --output order && sed -n 51,95p order | paste -sd' '"

text '## What to recompute

**Operators, not layers.** A plan redoes what is cheap for its bytes: norms and activations many times, few products.'
show "ckc plan $plan --budget 60% | grep -A5 ^recomputed"
text '**Attention that stores no scores need not be recomputed.** It is one operator here and keeps a number per row; a policy that redoes all of a layer pays for it.'
show "ckc plan $plan --policy recompute-all | grep -A5 ^recomputed"
text '**Greedy choices miss the budget, or pay more.** By bytes per second, by a knapsack over saved values (PyTorch'\''s), by DTR'\''s rule, and by the search, whose gap to what no schedule can beat is known:'
show "ckc compare $plan --budget 65% --policy chen-greedy --policy greedy --policy knapsack --policy dtr --policy ckc | sed -n 4,9p"
text '**Layers are not equal.** In a ResNet uniform spacing meets its limits early:'
show "ckc compare resnet18.onnx --bind batch=256 --device h200 --offload no --budget 70% --policy every-1 --policy every-2 --policy chen-sqrt --policy ckc | sed -n 4,8p"

text '## Laws, and what is left of them

**O(sqrt L).** On a uniform chain, whose layers are nothing but their results, sqrt(L) is what even spacing gives; a checkpoint at every layer saves nothing.'
for n in 16 64 256 1024; do
    chain $n
    show "ckc compare chain$n.dag --moves 1000 --policy keep-all --policy every-1 --policy chen-sqrt | sed -n 5,7p"
done
text '**Memory times compute is no constant.** Nested recomputation goes below 2 sqrt(L) = 32; peak, cost and their product:'
for bytes in 257 64 32 24 16; do
    show "ckc solve chain256.dag --budget $bytes --moves 300000 --json | jq -r '\"\\(.peak) x \\(.cost) = \\(.peak * .cost)\"'"
done
text '**A third more time?** One forward pass is a third of a step at most; the curve is flat at first, and steep only where little is left to drop:'
show "ckc sweep $plan --budgets 8 | sed -n 3,11p"

text '## Beside recomputation

**Offloading.** Recomputing, moving to the host'\''s memory, and both, decided together:'
for how in no only auto; do
    show "ckc plan ${plan/--offload no/--offload $how} --budget 3.2GB | grep ^time"
done
text '**16 bits** are decided first: less to store, and the rest is recomputed faster.'
show "ckc plan $plan --precision bf16 | grep -E '^(memory|time)'"
show "ckc plan $plan --precision bf16 --budget 60% | grep -E '^(memory|time)'"
text '**A larger batch in the same memory.** Sometimes it is faster, sometimes it is not; nobody has to guess. Micro-batches are an alternative, and the host'\''s memory another:'
show "ckc sweep decoder.onnx --bind seq=256 --batch 1..128 --device h200 --budget 3GB"
text '**Small networks need none of it.** What fits is left alone.'
show "ckc plan mlp.onnx --bind batch=32 --device h200 --budget 2GB | grep -E '^(time|recomputed)'"
text '**Several devices** are outside of what ckc does.'
