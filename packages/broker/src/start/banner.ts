/** What a person who has just started a broker wants to know. */
export interface Banner {
  version: string;
  /** Where it listens. */
  url: string;
  /** What it stores into. */
  store: string;
  /** Who may do what. */
  access: string;
}

export function bannerText(banner: Banner): string {
  const { url } = banner;
  return `
Queen ${banner.version}
  listens on  ${url}
  stores into ${banner.store}
  access      ${banner.access}
  browser     ${url} shows the dashboard, ${url}/docs the HTTP interface

  push:  curl -s ${url}/api/v1/push -d '{"items":[{"queue":"hello","payload":{"text":"world"}}]}'
  pop:   curl -s '${url}/api/v1/pop/queue/hello?autoAck=true&subscriptionMode=all'

`;
}
