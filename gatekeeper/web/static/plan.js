// Keeps the plan beside the form up to date while it is filled in. Without it the button "Plan" does the same.
"use strict";

(() => {
  const form = document.querySelector("[data-plan]");
  const outlook = document.querySelector("[data-outlook]");
  if (!form || !outlook) return;
  let latest = 0;

  form.addEventListener("change", async (event) => {
    const number = ++latest;
    const words = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
    try {
      const answer = await fetch(`/submit?${words}`, { headers: { Accept: "text/html" } });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.querySelector("[data-outlook]");
      if (number !== latest || !fresh) return;
      outlook.replaceChildren(...fresh.childNodes);
      if ("decides" in event.target.dataset) showFields(page, event.target.name);
    } catch {
      // The service is away; the button says so.
    }
  });

  // Another scheme, policy or baseline has other fields: its group of fields is taken from the fresh page.
  function showFields(page, name) {
    const old = form.querySelector(`[name="${name}"]`).closest("fieldset");
    const fresh = page.querySelector(`[name="${name}"]`);
    if (!fresh) return;
    old.replaceWith(fresh.closest("fieldset"));
    form.querySelector(`[name="${name}"]`).focus();
  }
})();
