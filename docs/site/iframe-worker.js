// The search runs in a worker, and browsers start no workers for pages opened from a disk. There a hidden frame takes its place:
// it has a global scope of its own, as a worker has, and messages go in and out as events.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #frame = document.createElement("iframe");
    #ready;

    constructor(url) {
      super();
      this.#frame.hidden = true;
      document.body.append(this.#frame);
      const scope = this.#frame.contentWindow;
      scope.postMessage = (data) => this.#deliver(this, data);
      this.#ready = new Promise((resolve, reject) => {
        const script = scope.document.createElement("script");
        script.onload = resolve;
        script.onerror = () => reject(new Error(`cannot load ${url}`));
        script.src = url;
        scope.document.body.append(script);
      });
      this.#ready.catch((error) => this.onerror?.(error));
    }

    postMessage(data) {
      this.#ready.then(() => this.#deliver(this.#frame.contentWindow, data), () => {});
    }

    terminate() {
      this.#frame.remove();
    }

    // A worker gets a copy of what is sent, and later, never while it is sent.
    #deliver(target, data) {
      const copy = structuredClone(data);
      setTimeout(() => {
        if (!this.#frame.isConnected) return;
        const event = new MessageEvent("message", { data: copy });
        if (target === this) this.onmessage?.(event);
        target.dispatchEvent(event);
      });
    }
  };
}
