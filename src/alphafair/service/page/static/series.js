// The columns of charts from the buckets of `LiveAnswer.series`, and updates of it. No drawing here.

/** Apply an update to a `LiveAnswer`; returns a new one. */
export function updated(live, update) {
  const { first } = update.series;
  const joined = (old, fresh) => [...old.slice(0, first), ...fresh];
  const series = { ...live.series };
  for (const name of ["decisions", "rewards", "reward_sums", "expired", "jain_index", "welfare"])
    series[name] = joined(live.series[name], update.series[name]);
  for (const name of ["arm_decisions", "arm_reward_sums"])
    series[name] = live.series[name].map((old, k) => joined(old, update.series[name][k]));
  for (const name of ["source_rewards", "source_reward_sums"]) // a source may be new
    series[name] = update.series[name].map((fresh, k) =>
      joined(live.series[name][k] ?? new Array(live.series.decisions.length).fill(0), fresh),
    );
  series.sources = update.series.sources;
  return { ...live, ...update, series, changes: [...live.changes, ...update.changes] };
}

const silent = ({ series, at }) => at > series.start + series.decisions.length * series.width;

/** The end of every bucket, and the present: it ends the last bucket, or the silence after it. */
export function times(live) {
  const { series, at } = live;
  const ends = series.decisions.map((_, k) =>
    Math.min(series.start + (k + 1) * series.width, Math.max(at, series.start + k * series.width + 1e-3)),
  );
  return silent(live) ? [...ends, at] : ends;
}

/** A column of the series up to the present: `value` is that of the silence after the last bucket. */
export const upToNow = (live, column, value) => (silent(live) ? [...column, value] : column);

/** Values hold until the next one. */
export function held(column) {
  let last = null;
  return column.map((value) => (last = value ?? last));
}

/** How many buckets a moving mean covers: a twentieth of the picture. */
export const reach = (length) => Math.max(3, Math.round(length / 20));

/** The mean reward in the buckets up to each one, weighted by rewards: steady enough to see a trend. */
export function movingMean(sums, counts, width) {
  let sum = 0;
  let count = 0;
  return sums.map((_, k) => {
    sum += sums[k];
    count += counts[k];
    if (k >= width) {
      sum -= sums[k - width];
      count -= counts[k - width];
    }
    return count > 0 ? sum / count : null;
  });
}

/** What a group, or arm, is entitled to at each time: its part of the entitlements of those that are live then. */
export function entitledAt(x, shares) {
  const isLive = ({ live_spans: spans }, at) => spans.some(([from, until]) => from <= at && (until === null || at <= until));
  const all = x.map((at) => shares.reduce((sum, each) => sum + (isLive(each, at) ? each.entitlement : 0), 0));
  return (share) => x.map((at, k) => (isLive(share, at) && all[k] > 0 ? share.entitlement / all[k] : null));
}

/** The share of every group in everything so far, bucket by bucket. `members` has the rows of each group. */
export function cumulativeShares(rows, members) {
  const length = rows[0]?.length ?? 0;
  const totals = members.map(() => new Array(length));
  const running = new Array(members.length).fill(0);
  for (let k = 0; k < length; k += 1) {
    let all = 0;
    members.forEach((arms, g) => {
      for (const arm of arms) running[g] += rows[arm][k];
      all += running[g];
    });
    members.forEach((_, g) => (totals[g][k] = all > 0 ? running[g] / all : null));
  }
  return totals;
}
