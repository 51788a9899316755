import { render } from "preact";

import { App } from "./app.tsx";
import { keepTheme } from "./theme.ts";

keepTheme();
render(<App />, document.getElementById("app")!);
