// When things are drawn. Numbers arrive for as long as somebody watches, and every redraw costs the watcher's machine.

const INTERVAL = 500; // milliseconds between two redraws

/** A function that asks for `draw`: now, or once the last draw is old enough; of a hidden page, once it is visible. */
export function paced(draw, interval = INTERVAL) {
  let timer = 0;
  let last = -Infinity;
  let wanted = false;
  function run() {
    timer = 0;
    if (document.hidden) return;
    wanted = false;
    last = performance.now();
    draw();
  }
  function ask() {
    wanted = true;
    if (!document.hidden) timer ||= setTimeout(run, Math.max(0, last + interval - performance.now()));
  }
  document.addEventListener("visibilitychange", () => wanted && ask());
  return ask;
}

/** A function that asks for `draw`: now if the element is in the viewport or near it, else once it comes there. */
export function whenSeen(element, draw) {
  let seen = true; // until the browser says otherwise: the first draw is for everybody, also for print
  let wanted = false;
  function run() {
    wanted = false;
    draw();
  }
  function observed(entries) {
    seen = entries.at(-1).isIntersecting;
    if (seen && wanted) run();
  }
  new IntersectionObserver(observed, { rootMargin: "10%" }).observe(element);
  addEventListener("beforeprint", () => wanted && run());
  return () => (seen ? run() : void (wanted = true));
}
