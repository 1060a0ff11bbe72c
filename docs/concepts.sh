#!/bin/bash
# concepts.sh -- writes docs/concepts.md: what is said of recomputation, each with commands that show it and what
# they printed.  Usage, in the repository's folder: docs/concepts.sh [CKC] >docs/concepts.md
# Needs nothing but ckc and this repository.  What it prints is the same every time, but for what is measured.
set -eu
ckc=$(realpath "${1:-build/release/ckc}")
examples=$(realpath examples)
pictures=$(realpath docs/pictures)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin"
ln -s "$ckc" "$folder/bin/ckc"
PATH=$folder/bin:$PATH
export XDG_CACHE_HOME=$folder # a cache of its own: times are those of this run
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

text() { echo; cat; }
# A command on lines that end in a backslash, not broken within quotes.
wrap()
{
    awk '{
        indent = "    $ "; line = word = quote = ""
        for (i = 1; i <= length($0) + 1; i++) {
            c = substr($0, i, 1)
            if (c == quote)
                quote = ""
            else if (quote == "" && index("\"\047", c))
                quote = c
            if (c != "" && (c != " " || quote != "")) {
                word = word c
                continue
            }
            if (line != "" && length(line) + length(word) > 92) {
                print indent line " \\"
                indent = "          "
                line = ""
            }
            line = line (line == "" ? "" : " ") word
            word = ""
        }
        print indent line
    }' <<<"$1"
}
show() # a command: it and what it prints
{
    echo
    wrap "$1"
    eval "$1" 2>&1 | sed 's/^/    /; s/ *$//'
}

plan="decoder.onnx --bind batch=64,seq=256 --device h200 --offload no"
tiny="decoder.onnx --bind batch=16,seq=64 --init normal:0.02 --optimizer sgd --device cpu --quiet"

cat <<'END'
# What is said of recomputation, and what ckc shows

Made by `docs/concepts.sh`: every block is a command and what it printed, shortened where a pipe says so.
`decoder.onnx`, `resnet18.onnx` and `mlp.onnx` are the models of `examples/`. Plans are for an H200, that was
not there: bytes are exact, times are predicted from its numbers, and 670 MB of each budget are the driver's.
What runs, runs on this machine's processor; times of such runs are measured, and differ from run to run.

* [Memory](#memory): [what fills it](#activations-not-weights-fill-memory) ·
  [the tape](#the-forward-pass-writes-a-tape-the-backward-pass-reads-it-in-reverse) ·
  [layer by layer](#layer-by-layer) · [the bytes of a transformer's layer](#the-bytes-of-a-transformers-layer) ·
  [the peak](#the-peak-comes-once) · [how much is saved](#how-much-is-saved) ·
  [what cannot be](#recomputation-is-not-enough-for-every-model)
* [Forget, and compute again](#forget-and-compute-again): [the same gradients](#the-same-gradients) ·
  [the same training](#the-same-training) · [dropout](#dropout-draws-the-same-again) ·
  [precision](#a-recomputation-has-the-precision-of-what-it-repeats) ·
  [four layers by hand](#four-layers-by-hand) · [every N layers](#every-n-layers-is-a-dial-of-memory-only) ·
  [every tenth step](#a-note-every-tenth-step)
* [What to recompute](#what-to-recompute): [operators](#operators-not-layers) · [attention](#attention) ·
  [greedy choices](#greedy-choices-miss-the-budget-or-pay-more) · [unequal layers](#layers-are-not-equal)
* [Time](#time): [a third](#a-third-more-time) · [predicted and measured](#predicted-and-measured) ·
  [where the time goes](#kernel-by-kernel) · [the whole step's peak](#the-whole-steps-memory)
* [Laws](#laws-and-what-is-left-of-them): [sqrt(L)](#sqrtl) ·
  [memory times compute](#memory-times-compute-is-no-constant) ·
  [40 to 60 % for 10 to 20 %](#40-to-60--less-for-10-to-20--more-time)
* [Beside recomputation](#beside-recomputation): [offloading](#offloading) · [16 bits](#16-bits) ·
  [a larger batch](#a-larger-batch-in-the-same-memory) · [a larger GPU](#or-a-larger-gpu) ·
  [out of memory](#out-of-memory) · [when not](#small-networks-need-none-of-it)

## Memory
END

# 1
text <<'END'
### Activations, not weights, fill memory

It depends on the batch: of one sample they are a fifth, of 64 nearly all. In a convolutional network they
lead earlier, in a perceptron late.
END
show "ckc plan ${plan/batch=64/batch=1} | grep -A6 'at the peak'"
show "ckc plan $plan | grep -A6 'at the peak'"
for model in "resnet18.onnx --bind batch=8" "mlp.onnx --bind batch=4096"; do
    show "ckc plan $model --device h200 --offload no | grep -A6 'at the peak'"
done

# 2
text <<'END'
### The forward pass writes a tape, the backward pass reads it in reverse

What is made first is read last. `made` is the kernel of the step that makes a result, `until` the last one
that reads it; the largest of the first and the last block:
END
show "ckc explain $plan --node 'h.[05].*' | grep -E '^ +bytes ms|^(kept|redone).*(mlp|attn)' | head -12"

# 29
text <<'END'
### Layer by layer

Bytes that each layer holds at the largest step, the layers being the modules of the PyTorch model:
END
show "ckc plan $plan --memory | sed -n '/^by layer/,/h.1.attn/p'"

# 23, 28
text <<'END'
### The bytes of a transformer's layer

Korthikanti and others count 34 sbh bytes of activations in 16 bits (s: length, b: batch, h: width): 16 tensors of
sbh numbers, and two masks of dropout. Here sbh = 6,291,456 numbers are 25.17 MB in f32. Masks are drawn again
instead of stored; the 16 tensors are there: 8 of the MLP, 4 of attention, 2 residual sums, 2 norms, and with them
1.05 MB of sums of rows.
END
show "ckc plan $plan --policy keep-all --memory | grep 'h\\.2'"
text <<'END'
Attention that is not one operator adds 5 as²b bytes (a: heads), its scores before and after dropout, and a mask.
Here as²b numbers are 100.66 MB, and there are two of them; and its result is in a part that has no name.
END
show "ckc plan $plan --policy keep-all --memory --disable recognise | grep 'h\\.2'"
text <<'END'
So one layer of length 2048, width 4096, batch 1 keeps 16 · 2048 · 4096 numbers, in 16 bits 268 MB, and 80 of
them 21 GB: not the 64 MB and 5 GB that are read here and there, which are four such tensors.
END

# 8
text <<'END'
### The peak comes once

What the rest of the step holds is less; only the peak decides whether it fits.
END
for how in "--policy keep-all" "--policy every-1" "--budget 60%"; do
    show "ckc plan $plan $how --memory | grep -E '^(on average|held)'"
done

# 16, 33
text <<'END'
### How much is saved?

Of activations and of everything are two answers: the table of `ckc compare` has both. `ratio=0.25` wraps one
layer in four, as `checkpoint_ratio` does. The activations fall by less than wrapped layers have: their inputs
stay.
END
show "ckc compare $plan --budget 100% --policy keep-all --policy ratio=0.25 --policy ratio=0.5 --policy ratio=0.75 | sed -n 4,8p"

# 11
text <<'END'
### Recomputation is not enough for every model

What lives through the step is there in any plan; a budget below is refused with the least that works, and
what holds it.
END
show "ckc plan $plan --budget 1GB 2>&1 | cut -d';' -f1 | fold -sw 100"

# 3
text <<'END'
## Forget, and compute again

### The same gradients

With dropout, after two steps, all gradients, outputs and the loss are the same bits, whatever was recomputed.
END
show "ckc ${tiny/ --quiet/} --steps 2 --grads all.npz | grep -E '^(recomputed|loss)'"
show "ckc ${tiny/ --quiet/} --steps 2 --policy every-2 --grads less.npz | grep -E '^(recomputed|loss)'"
show "cmp all.npz less.npz && echo the same bits"

# 43
text <<'END'
### The same training

Weights and running statistics of batch norms after three steps, by every policy. A statistic that was
updated twice, as checkpointing frameworks have done, would show.
END
show "for policy in keep-all recompute-all every-2 segments=1-2 ratio=0.5 chen-sqrt selective; do ckc resnet18.onnx --bind batch=4 --init kaiming --device cpu --steps 3 --policy \$policy --save w.safetensors --quiet; cksum <w.safetensors; done | sort | uniq -c | awk '{ print \$1, \"files with checksum\", \$2 }'"

# 42
text <<'END'
### Dropout draws the same again

Its numbers follow from seed, node and step, not from the order in which kernels run. Losses of ten steps, with
and without recomputation, and with another seed:
END
losses="grep -o '\"loss\":[0-9.]*' run.jsonl | cut -d: -f2 | cut -c1-7 | paste -sd' '"
show "ckc $tiny --steps 10 --metrics run.jsonl && $losses"
show "ckc $tiny --steps 10 --metrics run.jsonl --policy every-1 && $losses"
show "ckc $tiny --steps 10 --metrics run.jsonl --seed 2 && $losses"

# 25
text <<'END'
### A recomputation has the precision of what it repeats

It is the same kernel on the same operands, in f32, bf16 and fp16:
END
show "for type in f32 bf16 fp16; do ckc $tiny --precision \$type --steps 2 --policy keep-all --grads all.npz && ckc $tiny --precision \$type --steps 2 --policy every-1 --grads less.npz && cmp all.npz less.npz && echo \$type: the same bits; done"
text <<'END'
A schedule in which one would have another type is refused; here one is made by hand:
END
show "ckc plan decoder.onnx --bind batch=16,seq=64 --device cpu --precision bf16 --policy every-1 --quiet --output s; sed 's/MatMul.remat: bf16/MatMul.remat: f32/' s/step.ckp >s/other.ckp; ckc run s/other.ckp --init normal:0.02"

# 5, 6, 9
text <<'END'
### Four layers by hand

Every number is counted in [examples/trace4](../examples/trace4/README.md): segments of two need more memory
than single layers and redo as much; the last segment should be stored; one segment of all saves nothing.
END
show "ckc compare trace4.dag --policy keep-all --policy every-1 --policy every-2 --policy segments=1-2 --policy segments=1,2,3 --policy segments=1,3 --policy segments=1-4 --policy ckc | sed -n 4,12p"

# 4, 21, 26, 30
text <<'END'
### Every N layers is a dial, of memory only

Memory is least where a segment's inner tensors and the kept results balance, in a transformer at one layer; and time
hardly changes: any spacing redoes about one forward pass. Spacing checkpoints wider does not make training
faster; storing whole layers does, and choosing by operators does more.
END
show "ckc compare $plan --policy keep-all --policy every-1 --policy every-2 --policy every-3 --policy every-4 --policy every-8 --policy segments=1-3 --policy ckc | sed -n 4,12p"

# 40
text <<'END'
### A note every tenth step

Of fifty: the last stretch runs again, then backwards through it, then the stretch before. The numbers are
steps, from 51 on backward ones. To go back from 23 with notes behind every tenth, 21 to 23 run again:
END
chain 50
show "ckc solve chain50.dag --budget 100% --policy every-10 --output order | cut -d, -f1 && sed -n 51,95p order | paste -sd' ' | fold -sw 90"
chain 23
show "ckc solve chain23.dag --budget 100% --policy every-10 --output order | cut -d, -f1 && sed -n 24,29p order | paste -sd' '"

# 7
text <<'END'
## What to recompute

### Operators, not layers

A plan redoes what is cheap for its bytes: norms and activations many times, few products.
END
show "ckc plan $plan --budget 60% | grep -A5 ^recomputed"

# 12, 22
text <<'END'
### Attention

Where softmax is an operator of its own, its scores are most of what a long sequence stores, and the first
that a plan drops:
END
long="${plan/batch=64/batch=16} --disable recognise"
show "ckc plan $long --memory | grep -E '^(memory|  h.2.(attn|mlp))'"
show "ckc plan $long --budget 60% | grep -A5 ^recomputed"
text <<'END'
As one operator it keeps a number per row, and has no scores to drop; the products of the MLP come first. A
policy that redoes all of a layer pays for attention once more, for next to nothing:
END
show "ckc plan ${long/ --disable recognise/} --memory | grep -E '^(memory|  h.2.(attn|mlp))'"
show "ckc plan ${long/ --disable recognise/} --budget 60% | grep -A5 ^recomputed"
show "ckc plan ${long/ --disable recognise/} --policy recompute-all | grep -A4 ^recomputed"

# 13, 32
text <<'END'
### Greedy choices miss the budget, or pay more

By bytes per second, by a knapsack over saved values (PyTorch's), by DTR's rule, and by the search, whose gap
to what no schedule can beat is known. A limit on the sum of what is saved is no limit on the peak: `no`.
END
show "ckc compare $plan --budget 65% --policy chen-greedy --policy greedy --policy knapsack --policy dtr --policy ckc | sed -n 4,9p"

# 24
text <<'END'
### Layers are not equal

In a ResNet the first layers hold most of the bytes and the last most of the weights; uniform spacing meets its
limits early:
END
show "ckc compare resnet18.onnx --bind batch=256 --device h200 --offload no --budget 70% --policy every-1 --policy every-2 --policy chen-sqrt --policy ckc | sed -n 4,8p"

# 19
text <<'END'
## Time

### A third more time?

A backward pass is about two forward passes, so that redoing all is at most a third of a step, and less where
products need not be redone for anything. The two passes here, from kernels measured one by one:
END
for model in "decoder.onnx --bind batch=8,seq=128" "resnet18.onnx --bind batch=16" "mlp.onnx --bind batch=16384"; do
    show "ckc explain $model --device cpu | sed -n 3p"
done
text <<'END'
The overhead of one redo of every layer, predicted:
END
for model in "$plan" "resnet18.onnx --bind batch=256 --device h200 --offload no" "mlp.onnx --bind batch=65536 --device h200 --offload no"; do
    show "ckc compare $model --policy keep-all --policy every-1 | sed -n 4,6p"
done
text <<'END'
Between nothing and all the curve is flat at first, and steep only where little is left to drop:
END
show "ckc sweep $plan --budgets 8 --plot frontier.svg | sed -n 3,11p"
cp frontier.svg "$pictures"
text <<'END'
![Overhead by budget: predicted, and the least of any schedule](pictures/frontier.svg)
END

# 10, 15
text <<'END'
### Predicted and measured

Kernels are measured when a step is planned; their sum is the prediction. On this machine, steps of all plans in
turns, medians. Where other processes were busy the last line says so, and steps take longer than predicted;
[benchmarks.md](benchmarks.md#step-time) has an idle machine's.
END
for model in "decoder.onnx --bind batch=8,seq=128 --init normal:0.02" "resnet18.onnx --bind batch=16 --init kaiming" "mlp.onnx --bind batch=16384"; do
    show "ckc compare $model --device cpu --measure --budget 100% --policy keep-all --policy ratio=0.5 --policy every-1 --policy selective | sed -n '4,8p; /^measured/p'"
done

# 31
text <<'END'
### Kernel by kernel

`--profile` times each step of the schedule by itself, bytes come from shapes; a counter of allocated bytes that
only rises would make later layers look larger. The slowest:
END
show "ckc ${tiny/ --quiet/} --steps 3 --profile | grep predicted | head -6"

# 30
text <<'END'
### The whole step's memory

A forward pass alone does not show what a segment needs when it runs again. What a process of the saved schedule
held in all (`resident`), beside the arena:
END
show "for policy in keep-all every-1 every-3; do ckc plan decoder.onnx --bind batch=16,seq=128 --device cpu --policy \$policy --quiet --output s; ckc run s/step.ckp --steps 2 --init normal:0.02 --json | awk -v policy=\$policy '/\"arena_bytes\"/ { a = \$2 / 1e6 } /\"resident_bytes\"/ { r = \$2 / 1e6 } END { printf \"%-9s arena %.0f MB, resident %.0f MB\\n\", policy, a, r }'; done"

# 18
text <<'END'
## Laws, and what is left of them

### sqrt(L)

On a uniform chain, whose layers are nothing but their results, even spacing needs 2 sqrt(L), and a checkpoint at
every layer saves nothing:
END
for n in 16 64 256 1024; do
    chain $n
    show "ckc compare chain$n.dag --moves 1000 --policy keep-all --policy every-1 --policy chen-sqrt | sed -n 5,7p"
done
text <<'END'
In the same memory the search redoes less, as it may keep a result that a segment made again:
END
for n in 64 256; do
    show "ckc compare chain$n.dag --budget $(awk -v n=$n 'BEGIN { print 2 * sqrt(n) }') --moves 300000 --policy chen-sqrt --policy ckc | sed -n 4,6p"
done

# 20
text <<'END'
### Memory times compute is no constant

Nested recomputation goes below 2 sqrt(L) = 32; peak, cost and their product:
END
for bytes in 257 64 32 24 16 12; do
    show "ckc solve chain256.dag --budget $bytes --moves 300000 | sed -E 's/.* cost ([0-9]+) .* peak ([0-9]+) .*/echo \"\\2 x \\1 = \$((\\2 * \\1))\"/' | sh"
done

# 35, 39
text <<'END'
### 40 to 60 % less for 10 to 20 % more time

So it is said of a checkpoint at every 2 to 4 layers, and 60 to 70 % for 20 to 30 %. Storing half of the layers
comes there (`ratio`); choosing by operators saves as much for a fraction. Of the activations:
END
saved="awk '/^[cker].*B .*B / && !/^budget/ { b = \$2 * (\$3 == \"GB\" ? 1000 : 1); if (\$1 == \"keep-all\") all = b; else printf \"%-10s saves %4.1f %% for %s %%\\n\", \$1, 100 * (1 - b / all), \$9 }'"
show "ckc compare $plan --budget 100% --policy keep-all --policy ratio=0.5 --policy ratio=0.67 --policy ratio=0.75 --policy every-2 --policy every-4 | $saved"
show "for budget in 80% 70% 60% 55% 50%; do ckc compare $plan --budget \$budget --policy keep-all --policy ckc | $saved; done"

# 17
text <<'END'
## Beside recomputation

### Offloading

Recomputing, moving to the host's memory over a link of 64 GB/s, and both, decided together:
END
for how in no only auto; do
    show "ckc plan ${plan/--offload no/--offload $how} --budget 2.87GB | grep -E '^(time|recomputed|offloaded)'"
done

# 34
text <<'END'
### 16 bits

They come first: less to store, and the rest is recomputed faster. Weights that train, gradients and optimizer
state stay in f32; the copies in 16 bits that products read are counted:
END
for precision in f32 bf16 fp16; do
    show "ckc plan $plan --precision $precision | grep -E '^(memory|time|  (parameters|gradients|activations))'"
done
show "ckc plan $plan --precision bf16 --budget 60% | grep -E '^(memory|time)'"
text <<'END'
A loss scale that is too large costs steps, not weights:
END
show "ckc ${tiny/ --quiet/} --precision fp16 --loss-scale 1e10 --steps 12 | grep -E 'step (1|9) .*skipped|^loss'"

# 36, 41
text <<'END'
### A larger batch in the same memory

Sometimes it is faster, sometimes it is not; nobody has to guess. Micro-batches are an alternative, and the host's
memory another. Here recomputing makes an eightfold batch fit, and hardly pays:
END
show "ckc sweep decoder.onnx --bind seq=256 --batch 1..256 --device h200 --budget 2.67GB"
text <<'END'
On a processor small batches are about as fast a sample as large ones, and recomputing for a larger one loses;
in micro-batches nothing is lost. The perceptron on one thread of this machine, from kernels measured one by one:
END
show "ckc sweep mlp.onnx --batch 64..2048 --device cpu --threads 1 --budget 1MB | sed '/^micro:/,/^largest/d'"

# 27
text <<'END'
### Or a larger GPU?

A batch that needs 105 GB fits an H200 (141 GB) as it is, and an H100 (80 GB, as fast in f32, with slower memory) by
recomputation: what the missing 21 GB cost in time, and what a GiB is worth there.
END
show "ckc plan decoder.onnx --bind batch=4000,seq=256 --device h200 --offload no | grep ^time"
show "ckc plan decoder.onnx --bind batch=4000,seq=256 --device h100 --offload no --budget 84GB | grep ^time"
show "ckc explain decoder.onnx --bind batch=4000,seq=256 --device h100 --offload no --budget 84GB | grep -A2 'memory is worth'"

# 14
text <<'END'
### Out of memory

What to do, best first; the first line, run, fits.
END
show "ckc oom decoder.onnx --bind batch=64,seq=256 --device h200 --budget 2.67GB"

# 37
text <<'END'
### Small networks need none of it

What fits is left alone. Inference has no tape at all.
END
show "ckc plan mlp.onnx --bind batch=32 --device h200 --budget 2GB | grep -E '^(time|recomputed)'"

# 38
text <<'END'
### Several devices

They are outside of what ckc does.
END
