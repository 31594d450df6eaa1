// Requests to the service: JSON, the session, and streams of server-sent events.

const embedded = (name) => document.querySelector(`meta[name="${name}"]`).content;

export const root = embedded("root");

/** What this address shows: `view`, the `name` of an experiment, the `role` that it needs, the `roles` that include it. */
export const page = JSON.parse(embedded("page"));

/** Sentences that the documentation has too: about `roles`, `guarantees` by kind of change, and `signing_out`. */
export const sentences = JSON.parse(embedded("sentences"));

/** The address of a page or a route under the prefix of a reverse proxy. */
export const address = (path) => root + path;

/** The address of a page of an experiment. */
export const pageOf = (name, page) => address(`/experiments/${encodeURIComponent(name)}/${page}`);

/** The address of a route of an experiment in the API. */
export const routeOf = (name, rest = "") => address(`/v1/experiments/${encodeURIComponent(name)}${rest}`);

/** The permanent link of a decision. */
export const decisionLink = (name, id) => `${pageOf(name, "decision")}?id=${encodeURIComponent(id)}`;

/** An answer that is not a success: `message` and `repair` are sentences of the service. */
export class Problem extends Error {
  constructor(status, error) {
    super(error.message);
    Object.assign(this, { status, code: error.code, argument: error.argument, repair: error.repair });
  }
}

/** A problem in words, and how to repair it if the message does not say so. */
export const explained = ({ message, repair }) =>
  repair && !message.includes(repair) ? `${message} ${repair}` : message;

export const session = {
  signed_in: false,
  needs_key: false,
  name: null,
  role: null,
  roles: [],
  csrf: null,
  version: "",
};

export const may = (role) => session.roles.includes(role);

/** Whether the caller may manage keys and create experiments: it is an admin without limits. */
export const mayOperate = () => may("admin") && session.experiments === null;

export async function loadSession() {
  Object.assign(session, await request("GET", address("/session.json")));
  return session;
}

/** The page to sign in, which returns here afterwards; with `another`, also for those who are signed in. */
export function signInAddress(another = false) {
  const here = location.pathname.slice(root.length) + location.search;
  return address(`/sign-in?next=${encodeURIComponent(here)}${another ? "&another=true" : ""}`);
}

/** Leave for the page to sign in. */
export function signIn() {
  location.assign(signInAddress());
  return new Promise(() => {}); // nothing after this runs: the page is left
}

export async function get(path, options = {}) {
  return request("GET", path, undefined, options);
}

export async function send(method, path, body) {
  return request(method, path, body);
}

async function request(method, path, body, { signal } = {}) {
  const headers = { accept: "application/json" };
  if (body !== undefined) headers["content-type"] = "application/json";
  if (method !== "GET" && session.csrf) headers["x-alphafair-csrf"] = session.csrf;
  let answer;
  try {
    answer = await fetch(path, {
      method,
      headers,
      signal,
      credentials: "same-origin",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw new Problem(0, {
      code: "no_connection",
      message: "The service does not answer.",
      repair: "Check that it runs, then try again.",
    });
  }
  const text = await answer.text();
  let read = null;
  try {
    read = text ? JSON.parse(text) : null;
  } catch {
    // a proxy's page, not an answer of the service
  }
  if (answer.ok) return read;
  if (answer.status === 401 && !path.startsWith(address("/session"))) return signIn();
  throw new Problem(
    answer.status,
    read?.error ?? { code: "bad_answer", message: `The service answered with status ${answer.status}.` },
  );
}

/**
 * Follow a stream of events for as long as the page is visible.
 *
 * The service begins every connection with `state`, or goes on where the last one ended, so replacing with `state` and
 * applying every `update` misses nothing. The browser reconnects by itself; where it gives up (an answer that is not a
 * stream, such as a proxy's 502) this function tries again. A hidden page holds no connection: browsers allow only six
 * to a host.
 */
export function follow(path, { state, update, status }) {
  let source = null;
  let timer = 0;
  let pause = 1000;

  function open() {
    clearTimeout(timer);
    if (source || document.hidden) return;
    source = new EventSource(path);
    source.addEventListener("open", () => {
      pause = 1000;
      status("live");
    });
    source.addEventListener("state", (event) => state(JSON.parse(event.data)));
    source.addEventListener("update", (event) => update(JSON.parse(event.data)));
    source.addEventListener("closed", () => {
      close();
      signIn();
    });
    source.addEventListener("error", () => {
      status("lost");
      if (source?.readyState === EventSource.CLOSED) {
        close();
        timer = setTimeout(retry, pause);
        pause = Math.min(2 * pause, 15000);
      }
    });
  }

  async function retry() {
    try {
      await loadSession();
      if (!session.signed_in) return signIn();
    } catch {
      // still lost: the stream will say so
    }
    return open();
  }

  function close() {
    clearTimeout(timer);
    source?.close();
    source = null;
  }

  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", open);
  open();
}
