// The command line that measures a case again, for a shell.

function shellQuote(text) {
  return /^[A-Za-z0-9_=.,:\/+-]+$/.test(text) ? text : `'${text.replace(/'/g, `'\\''`)}'`;
}

function commandOf(row) {
  const device = row.kind === "host" ? " --device host" : "";
  return `noisefloor run ${shellQuote(row.op)} --problem ${shellQuote(row.problem)} --dtype ${shellQuote(row.dtype)} ` +
    `--variant ${shellQuote(row.variant)}${device}`;
}
