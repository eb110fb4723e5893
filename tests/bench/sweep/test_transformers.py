"""The problem files hold the products and attentions that each transformer's configuration says by arithmetic."""

import collections
import csv
import json
import math

import pytest

from tests.support.machine import ROOT

FOLDER = ROOT / "bench/problems"
NETWORKS = json.loads((FOLDER / "transformers.json").read_text())


def counted(op, name, *fields):
    counts = collections.Counter()
    with open(FOLDER / f"{op}.csv", newline="") as stream:
        for row in csv.DictReader(stream):
            if row["network"] == name:
                counts[tuple(row[field] if field in ("op", "problem") else int(row[field]) for field in fields)] += int(row["count"])
    return counts


@pytest.mark.parametrize("name", NETWORKS)
def test_counts_are_layers_times_products(name):
    config, inputs = NETWORKS[name]["config"], NETWORKS[name]["inputs"]
    heads, dim, layers, single = config["num_attention_heads"], config["attention_head_dim"], config["num_layers"], config.get("num_single_layers", 0)
    width, hidden = heads * dim, inputs["hidden_states"]
    ffn, batch, text = config.get("ffn_dim", 4 * width), hidden[0], inputs["encoder_hidden_states"][1]
    image = hidden[1] if len(hidden) == 3 else math.prod(hidden[2:]) // 4  # patches of 2x2
    products, attentions = collections.Counter(), collections.Counter()

    def layer(tokens, square, count):
        products.update({(batch * tokens, width, width): square * count, (batch * tokens, ffn, width): count, (batch * tokens, width, ffn): count})

    if name.startswith(("wan", "pixart")):  # attention to the text stands apart, whose second embedding has the width, too
        layer(image, 6, layers)
        products[batch * text, width, width] = 2 * layers + 1
        attentions.update({(batch, heads, image, image, dim): layers, (batch, heads, image, text, dim): layers})
        ropes = 2 * layers * name.startswith("wan")
    else:
        layer(image, 4, layers)
        layer(text, 4, layers + config.get("num_refiner_layers", 0))
        products.update({(image + text, width, width): 3 * single, (image + text, ffn, width): single, (image + text, width, width + ffn): single})
        attentions[batch, heads, image + text, image + text, dim] = layers + single
        if name.startswith("sd35"):  # the last layer leaves the text
            products.subtract({(batch * text, width, width): 1, (batch * text, ffn, width): 1, (batch * text, width, ffn): 1})
        ropes = {"flux": 2 * (layers + single), "sd35": 0, "qwen": 4 * layers, "huny": 2 * (layers + single)}[name[:4]]
    found = counted("gemm", name, "m", "n", "k")
    assert {what: found[what] for what in products} == products
    assert counted("attention", name, "batch", "heads", "seq_q", "seq_kv", "dim") == attentions
    unwritten = counted("not_written", name, "op", "problem")
    assert sum(count for (op, _), count in unwritten.items() if op == "rope") == ropes
