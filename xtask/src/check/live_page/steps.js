// Steps of `cargo xtask check live-page`, as a person would take them; each fails with what is not so.
window.steps = (() => {
  const LIMIT_MS = 30000;
  const one = (selector) => document.querySelector(selector);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const id = (name) => document.getElementById(name);

  function check(condition) {
    if (!condition()) throw Error(`not so: ${condition}`);
  }

  // An element that is not there yet makes a condition throw.
  function holds(condition) {
    try {
      return condition();
    } catch {
      return false;
    }
  }

  async function until(condition) {
    const end = Date.now() + LIMIT_MS;
    while (!holds(condition)) {
      if (Date.now() > end) {
        throw Error(`never so: ${condition}\non the page:\n${document.body.innerText}`);
      }
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }

  function enter(key) {
    id("key").value = key;
    id("login").requestSubmit();
  }

  async function click(text) {
    const button = () => all("button").find((button) => button.textContent === text);
    await until(button);
    button().click();
  }

  const allAreUp = () => until(() => all("[data-state=up]").length === 6);

  return {
    // Without a key and with a wrong one nothing is shown.
    async logIn(key, model) {
      await until(() => !id("login").hidden);
      enter(`parapet_${"0".repeat(64)}`);
      await until(() => id("login-error").textContent.includes("no admin key"));
      check(() => all("[data-model]").length === 0);
      enter(key);
      await until(() => one(`[data-model="${model}"]`));
      // The key is not left in the form.
      await until(() => id("key").value === "");
    },

    async showsAClusterThatIsWell() {
      await allAreUp();
      await until(() => all("[data-groups=decoded] .chip.reconstructed").length > 0);
      await until(() => /\d %/.test(one("[data-number=accuracy] b").textContent));
      const latencies = () => all("[data-latency=answered] td").slice(1);
      await until(() => latencies().every((cell) => /\d ms/.test(cell.textContent)));
    },

    // Returns the frontend's state, in which reconstruction improves the latency.
    async state(key) {
      const { latency } = views.get([...views.keys()][0]).model;
      check(() => latency.without.p99_ms > latency.answered.p99_ms);
      const answer = await fetch("/live/state", { headers: { authorization: `Bearer ${key}` } });
      return answer.json();
    },

    showsAFrozenInstance: () => until(() => all("[data-state=down]").length > 0),

    fitsASmallScreen() {
      const { scrollWidth, clientWidth } = document.documentElement;
      check(() => scrollWidth === clientWidth);
    },

    showsThatAllAreUp: allAreUp,

    // Redundancy is switched off, which asks twice, and the hold-back changed; without the key both
    // are refused. Then both are as configured again.
    async switches() {
      const status = () => one("[data-switch=redundancy]").textContent;
      const holdBack = () => one("[data-switch=hold-back]").textContent;
      const without = await fetch("/live/models/fashion/redundancy", {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: '{"on": false}',
      });
      check(() => without.status === 401);
      check(() => status() === "on");
      await click("Switch off");
      check(() => status() === "on");
      await click("Really switch off?");
      await until(() => status() === "OFF");
      one("[placeholder=ms]").value = "12.5";
      await click("Fix");
      await until(() => holdBack().includes("fixed here at 12.5 ms"));
      one("[aria-label^=percentile]").value = "400";
      await click("Learn");
      // What is no percentile is refused with the reason.
      await until(() => one(".refused").textContent.includes("0.97"));
      one("[aria-label^=percentile]").value = "";
      await click("As configured");
      await until(() => holdBack().endsWith("as configured"));
      await click("Switch on");
      await until(() => status() === "on");
    },

    async showsMarkupAsText(hostile) {
      await until(() => all("[data-model]").length === 1);
      check(() => one("h2").textContent === hostile);
      check(() => all("main img, main script, main b b").length === 0);
      check(() => window.hostile === undefined);
    },
  };
})();
