"use strict";
// Replaces the part of a page that changes. The server sends it whole whenever it differs from what is shown. Without
// this script the page is the same, and the link "Reload" loads it again.
(() => {
  const region = document.getElementById("live");
  const state = document.getElementById("state");
  if (!region || !state || region.dataset.page === undefined || !window.EventSource) return;
  let stream = null;

  const address = () => {
    const asked = new URLSearchParams({ page: region.dataset.page, seen: region.dataset.seen });
    return `/ui/events?${asked}`;
  };

  // What a person has opened or stands on stays as it is.
  const kept = () => ({
    open: new Map([...region.querySelectorAll("details[id]")].map((one) => [one.id, one.open])),
    scrolled: [...region.querySelectorAll(".wide")].map((one) => one.scrollLeft),
    focused: [...region.querySelectorAll("a, summary, [tabindex]")].indexOf(document.activeElement),
  });

  const restore = ({ open, scrolled, focused }) => {
    for (const one of region.querySelectorAll("details[id]")) {
      if (open.has(one.id)) one.open = open.get(one.id);
    }
    region.querySelectorAll(".wide").forEach((one, number) => { one.scrollLeft = scrolled[number] || 0; });
    if (focused >= 0) region.querySelectorAll("a, summary, [tabindex]")[focused]?.focus({ preventScroll: true });
  };

  const show = (event) => {
    const before = kept();
    region.innerHTML = event.data;
    region.dataset.seen = event.lastEventId;
    restore(before);
  };

  const start = () => {
    if (stream || document.hidden) return;
    stream = new EventSource(address());
    stream.onopen = () => { state.textContent = "Live."; };
    stream.onmessage = show;
    stream.onerror = () => {
      // The browser tries again by itself, unless the server has refused.
      const isOver = stream.readyState === EventSource.CLOSED;
      state.textContent = isOver ? "No longer live." : "Connecting again.";
    };
  };

  const stop = () => {
    stream?.close();
    stream = null;
    state.textContent = "";
  };

  document.addEventListener("visibilitychange", () => (document.hidden ? stop() : start()));
  addEventListener("pagehide", stop);
  addEventListener("pageshow", start);
  start();
})();
