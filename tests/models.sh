# models.sh -- for scripts that try models (reload.sh, bits.sh, gpu.sh): lists models, and finds the options that
# each needs.  They source it with root, shared, ckc (the program) and work (a folder for temporary files) set.

models() {
    for f in "$root"/examples/*/model.onnx "$shared"/fixtures/torch-oracle/*/model.onnx \
        "$root"/tests/data/zoo/*/model.onnx ${CKC_ZOO:+"$CKC_ZOO"/*/model.onnx "$CKC_ZOO"/*.onnx}; do
        [ ! -f "$f" ] || echo "$f"
    done
}

# Sets options to CKC_OPTIONS and what the model needs besides: sizes of its symbols, initial values.  Fails if the
# model does not run with these.
find_options() { # model batch
    options=${CKC_OPTIONS:-}
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

# The same with a batch of 64, or of 4 if an operator refuses 64, as the model has a fixed batch within.  After
# other errors it succeeds: they show when the model is checked.
find_some_options() { # model
    find_options "$1" 64 || ! grep -q ": node '" "$work/err" || find_options "$1" 4
}

losses() { tr -d '\n ' <"$1" | sed 's/.*"losses":\(\[[^]]*\]\).*/\1/'; }

# Calls check MODEL BUDGET for each model (all of models() if none is given) and budget, and prints a line for each;
# at the end, how many were right, infeasible and wrong.  check is the script's: it prints what is wrong, or nothing;
# its status is 3 if the budget is infeasible.
check_all() { # what-was-right budgets model...
    right=$1 budgets=$2 same=0 infeasible=0 failed=0
    shift 2
    [ $# -gt 0 ] || { models >"$work/models"; while read -r f; do set -- "$@" "$f"; done <"$work/models"; }
    for model; do
        find_some_options "$model"
        for budget in $budgets; do
            wrong=$(check "$model" "$budget")
            if [ $? -eq 3 ]; then
                infeasible=$((infeasible + 1)) says=infeasible
            elif [ -n "$wrong" ]; then
                failed=$((failed + 1)) says="FAILED: $wrong"
            else
                same=$((same + 1)) says="same bits"
            fi
            printf '%-70s %5s  %s\n' "${model#"$root/"}" "$budget" "$says"
        done
    done
    echo "$same $right, $infeasible budgets infeasible, $failed failures"
    [ "$failed" -eq 0 ] && [ "$same" -gt 0 ]
}
