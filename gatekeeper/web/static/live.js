// Keeps a page that shows unfinished work up to date. Without it the page still works; it just has to be reloaded.
"use strict";

(() => {
  const run = document.querySelector("[data-events]");
  const list = document.querySelector("[data-refresh]");
  if (run && "EventSource" in window) followRun(run);
  if (list) refreshList(list);

  // One run: the progress line moves with its events, and the page is loaded anew when its state changes.
  function followRun(element) {
    const seen = Number(element.dataset.after);
    const text = element.querySelector("[data-progress-text]");
    const bar = element.querySelector("progress");
    const source = new EventSource(element.dataset.events);
    const isNew = (event) => Number(event.lastEventId) > seen;

    source.addEventListener("progress", (event) => {
      if (!isNew(event) || !text) return;
      const { arm, stage, done, total } = JSON.parse(event.data);
      const counted = total > 1 ? ` ${done}/${total}` : "";
      text.textContent = `${arm ? `${arm}: ` : ""}${stage}${counted}`;
      if (!bar) return;
      if (total > 1) {
        bar.max = total;
        bar.value = done;
      } else {
        bar.removeAttribute("value");
      }
    });
    source.addEventListener("state", (event) => {
      if (!isNew(event)) return;
      source.close();
      window.location.reload();
    });
  }

  // The list: its rows are fetched again while some are unfinished and somebody looks.
  function refreshList(body) {
    const every = 5000;
    const look = async () => {
      if (!document.hidden && !body.contains(document.activeElement) && !body.querySelector(":checked")) {
        try {
          const answer = await fetch(window.location.href, { headers: { Accept: "text/html" } });
          const page = new DOMParser().parseFromString(await answer.text(), "text/html");
          const fresh = page.querySelector("tbody");
          if (answer.ok && fresh) {
            body.replaceChildren(...fresh.children);
            if (!("refresh" in fresh.dataset)) return;
          }
        } catch {
          // The service is away; try again later.
        }
      }
      window.setTimeout(look, every);
    };
    window.setTimeout(look, every);
  }
})();
