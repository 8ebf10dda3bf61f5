"use strict";
// The filter language of `kwire decode -w`, on the values that kwire put into the page; kwire/capture/filters.py has the rules.
// compileFilter(text) returns {test(values, details), needsDetails}, and throws FilterError for an expression that is wrong.
class FilterError extends Error {
  constructor(text, at, message, remedy) {
    super(`${message}\n  ${text}\n  ${" ".repeat(at)}^${remedy ? `\n${remedy}` : ""}`);
  }
}

const FILTER_NAMES = ["api", "version", "error", "ms", "topic", "partition", "group", "member", "txn", "offset", "key", "records",
  "client", "software", "broker", "conn", "corr", "packet", "bytes", "throttle", "problem"];

function filterTokens(text) {
  const pattern = /\s*(?:(==|!=|<=|>=|!~|[<>~(),])|"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|\/((?:[^/\\]|\\.)+)\/|([^\s()<>=!~,"']+))/y;
  const found = [];
  let pos = 0;
  while (text.slice(pos).trim()) {
    pattern.lastIndex = pos;
    const match = pattern.exec(text);
    if (!match) {
      const at = pos + text.slice(pos).search(/\S/);
      const quotes = text[at] === "'" || text[at] === '"';
      throw new FilterError(text, at, `${text[at]} makes no sense here`, quotes ? "close the quotes" : text[at] === "=" ? "write == to compare" : "");
    }
    const lead = match[0].length - match[0].trimStart().length;
    const at = pos + lead;
    if (match[1] !== undefined) found.push({kind: "op", text: match[1], at});
    else if (match[2] !== undefined || match[3] !== undefined)
      found.push({kind: "string", text: (match[2] ?? match[3]).replace(/\\(.)/g, "$1"), at});
    else if (match[4] !== undefined) found.push({kind: "regex", text: match[4].replaceAll("\\/", "/"), at});
    else found.push({kind: "word", text: match[5], at});
    pos = pattern.lastIndex;
  }
  found.push({kind: "end", text: "", at: text.length});
  return found;
}

const plainName = (name) => name.replaceAll("_", "").toLowerCase();

function* walkField(value, path) {
  if (Array.isArray(value)) for (const item of value) yield* walkField(item, path);
  else if (!path.length) yield value;
  else if (value && typeof value === "object")
    for (const [name, inner] of Object.entries(value)) if (plainName(name) === path[0]) yield* walkField(inner, path.slice(1));
}

function* recordFields(details, path) {
  const fields = {key: "key", value: "value", offset: "offset", timestamp: "timestamp_ms"};
  for (const side of ["request", "response"])
    for (const batch of details?.[side]?.batches ?? [])
      for (const record of batch.records) {
        if (typeof record !== "object") continue;
        if (path[0] === "headers") {
          for (const header of record.headers)
            if (Array.isArray(header) && (path.length < 2 || plainName(header[0]) === path[1])) yield header[1];
        } else yield record[fields[path[0]]];
      }
}

function numberOf(text) {
  return /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) ? Number(text) : null;
}

function compileFilter(text, apiNames) {
  const tokens = filterTokens(text);
  let next = 0, needsDetails = false;
  const peek = () => tokens[next], take = () => tokens[next++];
  const is = (...words) => ["word", "op"].includes(peek().kind) && words.includes(peek().text.toLowerCase());
  const wrong = (message, remedy, token) => new FilterError(text, (token ?? peek()).at, message, remedy);

  function any() {
    const tests = [all()];
    while (is("or")) { take(); tests.push(all()); }
    return tests.length === 1 ? tests[0] : (one) => tests.some((test) => test(one));
  }
  function all() {
    const tests = [not()];
    while (is("and")) { take(); tests.push(not()); }
    return tests.length === 1 ? tests[0] : (one) => tests.every((test) => test(one));
  }
  function not() {
    if (is("not")) { take(); const test = not(); return (one) => !test(one); }
    if (is("(")) {
      const opened = take(), test = any();
      if (!is(")")) throw wrong("this bracket is not closed", "", opened);
      take();
      return test;
    }
    return comparison();
  }
  function comparison() {
    const name = take();
    if (name.kind !== "word" || ["and", "or", "not", "in"].includes(name.text.toLowerCase()))
      throw wrong(`a name is expected, not ${name.text || "the end"}`, `names are ${FILTER_NAMES.join(", ")}`, name);
    const values = valuesOf(name);
    let negated = false, test;
    if (is("not")) {
      take();
      negated = true;
      if (!is("in")) throw wrong("`in` is expected after not");
    }
    if (is("in")) {
      take();
      const tests = list().map((literal) => testOf(name, "==", literal));
      test = (value) => tests.some((one) => one(value));
    } else if (peek().kind === "op" && ["==", "!=", "<", "<=", ">", ">=", "~", "!~"].includes(peek().text)) {
      const op = take().text;
      negated = op === "!=" || op === "!~";
      test = testOf(name, {"!=": "==", "!~": "~"}[op] ?? op, literalOf());
    } else {
      return (one) => { for (const value of values(one)) if (![null, undefined, "", 0, false, "NONE"].includes(value)) return true; return false; };
    }
    return (one) => { for (const value of values(one)) if (test(value)) return !negated; return negated; };
  }
  function list() {
    if (!is("(")) throw wrong("a list in brackets is expected after in", "such as: api in (Produce, Fetch)");
    take();
    const literals = [literalOf()];
    while (is(",")) { take(); literals.push(literalOf()); }
    if (!is(")")) throw wrong("a comma or a closing bracket is expected");
    take();
    return literals;
  }
  function literalOf() {
    const token = take();
    if (!["word", "string", "regex"].includes(token.kind))
      throw wrong(`a value is expected, not ${token.text || "the end"}`, 'such as 100 or "order*"', token);
    return token;
  }
  function valuesOf(name) {
    const [first, ...path] = name.text.split(".");
    const lower = first.toLowerCase();
    if (["request", "response", "records"].includes(lower) && (path.length || !FILTER_NAMES.includes(lower))) {
      if (!path.length) throw wrong(`a field is expected after ${first}`, "such as request.acks", name);
      const wanted = path.map(plainName);
      if (lower === "records" && !["key", "value", "offset", "timestamp", "headers"].includes(wanted[0]))
        throw wrong(`no message has a field ${path[0]}`, "records have key, value, offset, timestamp, headers", name);
      needsDetails = true;
      return lower === "records" ? (one) => recordFields(one.details, wanted) : (one) => walkField(one.details?.[lower]?.message, wanted);
    }
    if (path.length || !FILTER_NAMES.includes(lower))
      throw wrong(`there is no name ${name.text}`, `names are ${FILTER_NAMES.join(", ")}, request.FIELD, response.FIELD, records.FIELD`, name);
    return (one) => one.values[lower] ?? [];
  }
  function testOf(name, op, literal) {
    if (op === "~" || literal.kind === "regex") return likeOf(literal);
    if (name.text.toLowerCase() === "api" && literal.kind === "word") {
      const wanted = plainName(literal.text);
      if (!apiNames.some((one) => plainName(one) === wanted)) throw wrong(`there is no API ${literal.text}`, "", literal);
      return (value) => plainName(String(value)) === wanted;
    }
    if (op === "==") return equalOf(literal);
    const number = numberOf(literal.text);
    if (number === null) throw wrong(`${literal.text} is not a number`, "<, <=, > and >= compare numbers", literal);
    const compare = {"<": (a) => a < number, "<=": (a) => a <= number, ">": (a) => a > number, ">=": (a) => a >= number}[op];
    return (value) => typeof value === "number" && compare(value);
  }
  function equalOf(literal) {
    const constants = {true: true, false: false, null: null}, lower = literal.text.toLowerCase();
    if (literal.kind === "word" && Object.hasOwn(constants, lower)) return (value) => value === constants[lower] || value === literal.text;
    const number = literal.kind === "word" ? numberOf(literal.text) : null;
    return (value) => (number !== null && typeof value === "number") ? value === number : value === literal.text;
  }
  function likeOf(literal) {
    const wanted = literal.text;
    if (literal.kind === "regex") {
      let pattern;
      try { pattern = new RegExp(wanted); } catch (error) { throw wrong(`not a regular expression: ${error.message}`, "", literal); }
      return (value) => value !== null && pattern.test(String(value));
    }
    if (/[*?]/.test(wanted)) {
      const escaped = wanted.replace(/[.+^${}()|\\]/g, "\\$&").replaceAll("*", "[^]*").replaceAll("?", "[^]");
      const pattern = new RegExp(`^${escaped}$`);
      return (value) => value !== null && pattern.test(String(value));
    }
    return (value) => value !== null && String(value).includes(wanted);
  }

  if (peek().kind === "end") throw wrong("the expression is empty", "such as: api == Produce and ms > 100");
  const test = any();
  if (peek().kind !== "end") throw wrong(`${peek().text} is not expected here`, "join comparisons by and, or");
  return {test: (values, details) => test({values, details}), needsDetails};
}
