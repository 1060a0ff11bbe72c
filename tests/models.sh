# models.sh -- for scripts that try models (reload.sh, bits.sh): which, and what they want to be told.  Sourced with
# root, shared, ckc (the program) and work (a folder for what does not last) set.

models() {
    for f in "$root"/examples/*/model.onnx "$shared"/fixtures/torch-oracle/*/model.onnx \
        "$root"/tests/data/zoo/*/model.onnx ${CKC_ZOO:+"$CKC_ZOO"/*/model.onnx "$CKC_ZOO"/*.onnx}; do
        [ ! -f "$f" ] || echo "$f"
    done
}

# What the model wants to be told: sizes of its symbols, initial values; behind CKC_OPTIONS.
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

# A batch that the model fixes within is told by an operator's shapes; all else is a failure.
find_some_options() { # model
    find_options "$1" 64 || ! grep -q ": node '" "$work/err" || find_options "$1" 4
}

losses() { tr -d '\n ' <"$1" | sed 's/.*"losses":\(\[[^]]*\]\).*/\1/'; }

# check() of each model and budget, a line each; at the end how many were right, infeasible, wrong.
# check MODEL BUDGET prints what is wrong, or nothing; status 3: infeasible.
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
