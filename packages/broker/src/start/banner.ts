/** What a person who has just started a broker wants to know. */
export interface Banner {
  version: string;
  /** Where it listens. */
  url: string;
  /** What it stores into. */
  store: string;
  warnings: readonly string[];
}

export function bannerText(banner: Banner): string {
  const { url } = banner;
  const warnings = banner.warnings.map((warning) => `  warning     ${warning}\n`).join('');
  return `
Queen ${banner.version}
  listens on  ${url}
  stores into ${banner.store}
${warnings}
  push:  curl -s ${url}/api/v1/push -d '{"items":[{"queue":"hello","payload":{"text":"world"}}]}'
  pop:   curl -s '${url}/api/v1/pop/queue/hello?autoAck=true&subscriptionMode=all'

`;
}
