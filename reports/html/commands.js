// The command line that measures a case again, for a shell.

function shellQuote(text) {
  return /^[A-Za-z0-9_=.,:\/+-]+$/.test(text) ? text : `'${text.replace(/'/g, `'\\''`)}'`;
}

// `noisefloor list problems --filter` takes a POSIX extended expression.
const posixQuote = (text) => text.replace(/[\\^$.|?*+()[\]{}]/g, "\\$&");

function commandOf(row) {
  if (row.variant.startsWith("torch_")) {
    // PyTorch's program writes rows into a run folder: a new one, since this one has the row.
    const filter = shellQuote(`^${posixQuote(`${row.op}/${row.problem}`)}$`);
    return `noisefloor list problems --format json --filter ${filter} | python3 -m baselines.pytorch sweep --run-dir again ` +
      `--ops ${shellQuote(row.op)} --dtypes ${shellQuote(row.dtype)} --variants ${shellQuote(row.variant)}`;
  }
  const device = row.kind === "host" ? " --device host" : "";
  return `noisefloor run ${shellQuote(row.op)} --problem ${shellQuote(row.problem)} --dtype ${shellQuote(row.dtype)} ` +
    `--variant ${shellQuote(row.variant)}${device}`;
}
