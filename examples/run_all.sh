#!/usr/bin/env bash
# Run every example with a setting of seconds, for `make acceptance`. The commands for real data are the same. Outputs are in a
# temporary folder, or in the folder given as the argument.
set -euo pipefail
examples=$(cd "$(dirname "$0")" && pwd)
if [ $# -gt 0 ]; then
    mkdir -p "$1"
    folder=$(cd "$1" && pwd)
else
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
fi
cd "$folder"
if [ -n "$(ls -A)" ]; then
    echo "run_all: $folder is not empty: name a new folder" >&2
    exit 1
fi
ln -s "$examples" examples

run() {
    local begun=$SECONDS
    echo
    echo "\$ $*"
    "$@"
    echo "  $((SECONDS - begun)) s"
}

run python examples/demo.py
run roformer convert examples/roformer-mini-zh roformer-mini-zh
run python examples/hold_out.py examples/long_document.txt split --share 0.3
run python examples/pretrain_mlm.py examples/stages/quick.yaml --corpus split/train --eval split/held_out \
    --from roformer-mini-zh --output pretrained --save-steps 3 --logging-steps 1
echo '{"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}' > small.json
run python examples/paper/compare_position_embeddings.py examples/stages/quick.yaml --corpus split/train --eval split/held_out \
    --tokenizer roformer-mini-zh --config small.json --output positions --logging-steps 1 --save-steps 3
for number in 1 2 3 4; do
    printf ' = Article %s = \n\n A well @-@ known text of some words , number %s .\n' "$number" "$number"
done > wiki.txt
run python examples/paper/wikitext.py wiki.txt --output english --size 60 --held-out 2
run python examples/paper/compare_position_embeddings.py examples/stages/quick.yaml --corpus english/train.txt \
    --eval english/held_out.txt --tokenizer english/vocab.txt --config small.json --encodings rotary learned \
    --output english-runs --logging-steps 1 --save-steps 3
run python examples/finetune_triplet.py roformer-mini-zh --train examples/triplets.jsonl --max-length 64 --epochs 4 \
    --baselines --output cases
run python examples/finetune_classification.py roformer-mini-zh --train examples/reviews.csv --text review --label sentiment \
    --output reviews --seeds 0 1 --epochs 4
run python examples/finetune_questions.py roformer-mini-zh --train examples/answers.jsonl --epochs 2 --predictions answers.csv \
    --output reader
run python examples/finetune_tokens.py roformer-mini-zh --train examples/names.jsonl --seeds 0 1 --epochs 2 --output names
run python examples/split_questions.py examples/questions.jsonl --output questions
run python examples/train_retriever.py roformer-mini-zh --train questions/train.jsonl --test questions/test.jsonl --epochs 1 \
    --hard-negatives 1 --batch-size 8 --output retriever
mkdir -p glue/SST-2
for part in train dev; do
    sed '1s/.*/sentence,label/; s/好评$/1/; s/差评$/0/' examples/reviews.csv > "glue/SST-2/$part.csv"
done
run python examples/finetune_glue.py --models roformer-mini-zh pretrained/model --data glue --tasks sst2 --epochs 1 \
    --learning-rates 3e-4 1e-3 --length 32 --output glue-runs
run python examples/paper/char_lm.py examples/long_document.txt --output characters --steps 6 --eval-steps 3 --layers 1 --length 32 \
    --hidden-size 32 --heads 2 --features 16 --batch-size 4
run python examples/paper/position_laboratory/compare.py examples/long_document.txt --output laboratory --steps 6 --layers 1 --length 16 \
    --hidden-size 16 --heads 2 --batch-size 4
echo de,en > pairs.csv
for some in 'eins one' 'zwei two' 'drei three' 'vier four'; do
    for other in 'fünf five' 'sechs six' 'sieben seven' 'acht eight' 'neun nine'; do
        echo "${some% *} und ${other% *}.,${some#* } and ${other#* }." >> pairs.csv
    done
done
run python examples/translate.py --train pairs.csv --source de --target en --vocabulary-size 300 --layers 1 --width 32 \
    --steps 20 --output translations
run python examples/paper/decay.py decay.png

# Check that the main outputs exist.
for made in characters/curves.png laboratory/encodings.png decay.png pretrained/curves.png positions/curves.png \
    cases/results.json reviews/results.json names/results.json reader/results.json answers.csv \
    glue-runs/results.json translations/curves.png; do
    test -s "$made" || { echo "run_all: $made is missing" >&2; exit 1; }
done
