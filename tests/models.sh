# models.sh -- for scripts that try models (reload.sh, bits.sh): which, and what they want to be told.  Sourced with
# root, shared, ckc (the program) and work (a folder for what does not last) set.

models() {
    for f in "$root"/examples/*/model.onnx "$shared"/fixtures/torch-oracle/*/model.onnx \
        "$root"/tests/data/zoo/*/model.onnx ${CKC_ZOO:+"$CKC_ZOO"/*/model.onnx "$CKC_ZOO"/*.onnx}; do
        [ ! -f "$f" ] || echo "$f"
    done
}

# What the model wants to be told: sizes of its symbols, initial values.
find_options() { # model batch
    options=
    for _ in 1 2; do
        # shellcheck disable=SC2086 # a list of words
        "$ckc" "$1" $options --steps 1 --output "$work/try" --quiet 2>"$work/err" && return
        case $(cat "$work/err") in
        *"unbound dimensions: "*)
            # one symbol: a large batch, so that there is something to recompute; else batch and length
            bind=$(sed 's/.*unbound dimensions: //; s/; give --bind.*//; s/ (of [^)]*)//g; s/$/='"$2"'/; s/, \(.*\)='"$2"'/=16,\1=128/; s/, /=16,/g' "$work/err")
            options="$options --bind $bind" ;;
        *"give --init"*) options="$options --init normal:0.02" ;;
        *) return 1 ;;
        esac
    done
    # shellcheck disable=SC2086
    "$ckc" "$1" $options --steps 1 --output "$work/try" --quiet 2>"$work/err"
}

# A batch that the model fixes within is told by an operator's shapes; all else is a failure.
find_some_options() { # model
    find_options "$1" 64 || ! grep -q ": node '" "$work/err" || find_options "$1" 4
}

losses() { tr -d '\n ' <"$1" | sed 's/.*"losses":\(\[[^]]*\]\).*/\1/'; }
