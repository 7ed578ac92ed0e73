package freshness

// Validator: the safety net under the other guards, at a fixed interval.
//
// Closes: the stuck watch, the missed event, the key that is parked for ever. The other
// guards fail closed, so a mistake in one of them, or a watch that is silent and looks
// healthy, would stop a key for good.
//
// How: each second it looks at all parked keys, resolves the writes in doubt by one quorum
// read for each resource, and finds the feeds that lack something which the API server is
// known to have. Such a feed is healed step by step, each step counted: a new watch that
// asks for a bookmark; a comparison of the store with the API server, by metadata, which
// may show that nothing is missing; new connections, perhaps to another API server; a new
// list, and that at once if the store is older than it was; not ready; and at last Run returns an error, for the process to end and start
// anew. No step is taken unless the API server answers: when it is down, the watch is not
// what must be mended.
//
// Costs: a quorum read for each resource once a minute, and a pass over the parked keys
// each second.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// The validator's times. They can be changed in a ValidatorConfig.
const (
	// DefaultInterval is how often it looks.
	DefaultInterval = time.Second
	// DefaultProbePeriod is how often each feed is held against the API server
	// although nothing waits for it.
	DefaultProbePeriod = time.Minute
	// DefaultStuckAfter is after how long something that is missing is no longer
	// taken for lag.
	DefaultStuckAfter = 5 * time.Second
	// DefaultGiveUpAfter is after how long a feed that can't be healed makes the
	// process not ready. After twice as long Run returns an error.
	DefaultGiveUpAfter = time.Minute

	// bookmarkPeriod is how long an API server takes at most to tell a watch in
	// which nothing happens how far it is, with something to spare.
	bookmarkPeriod = 75 * time.Second
	// liveTimeout bounds each read of the validator.
	liveTimeout = 10 * time.Second
	// sweepEvery is every how many looks the ledger is swept.
	sweepEvery = 60
)

// ValidatorConfig configures a Validator. Ledger, Backlog, Feeds and Live are required.
type ValidatorConfig[K comparable] struct {
	Ledger  *Ledger[K]
	Backlog *Backlog[K]
	Feeds   []*Feed
	Live    Live
	// Reconnect, if it isn't nil, closes the connections that the feeds' watches
	// are on.
	Reconnect func()
	// Interval, ProbePeriod, StuckAfter and GiveUpAfter are the validator's times.
	// 0: the default.
	Interval, ProbePeriod, StuckAfter, GiveUpAfter time.Duration
	// Clock measures them. Nil: the real one.
	Clock clock.WithTicker
	// Metrics counts. Nil: nothing is counted.
	Metrics *Metrics
}

// Validator finds what the other guards have missed. It is safe for concurrent use. Make
// it with NewValidator.
type Validator[K comparable] struct {
	config ValidatorConfig[K]
	health []*feedHealth
	looks  int
}

// feedHealth is what a validator knows of one feed. Only the round that looks at it uses
// it, but for broken.
type feedHealth struct {
	feed *Feed
	// asked is when the API server was last asked.
	asked time.Time
	// probed is a version that the API server had at probedAt.
	probed   string
	probedAt time.Time
	// missingSince is since when the store lacks something; zero if it lacks
	// nothing. step is the last one taken about it, at stepAt.
	missingSince time.Time
	step         healingStep
	stepAt       time.Time
	// compared tells that the store was held against the API server since the last
	// list.
	compared bool
	// broken is since when the store lacks something, if it couldn't be healed.
	broken atomic.Pointer[time.Time]
}

// healingStep is what is done about a feed that lacks something.
type healingStep int

const (
	untouched healingStep = iota
	nudged
	compared
	reconnected
	relisted
	notReady
	givenUp
)

// NewValidator returns a validator for these feeds.
func NewValidator[K comparable](config ValidatorConfig[K]) *Validator[K] {
	defaults := []struct {
		value *time.Duration
		is    time.Duration
	}{
		{&config.Interval, DefaultInterval},
		{&config.ProbePeriod, DefaultProbePeriod},
		{&config.StuckAfter, DefaultStuckAfter},
		{&config.GiveUpAfter, DefaultGiveUpAfter},
	}
	for _, d := range defaults {
		if *d.value == 0 {
			*d.value = d.is
		}
	}
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	v := &Validator[K]{config: config}
	for _, feed := range config.Feeds {
		v.health = append(v.health, &feedHealth{feed: feed, asked: config.Clock.Now()})
	}
	return v
}

// Run looks at a fixed interval until ctx ends; then it returns nil. It returns an error
// when a feed can't be healed: the process is to end then, and to start anew.
func (v *Validator[K]) Run(ctx context.Context) error {
	ticker := v.config.Clock.NewTicker(v.config.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			if err := v.look(ctx); err != nil {
				return err
			}
		}
	}
}

// Healthy returns an error that names the feeds which lack something and couldn't be
// healed. It is what a readiness probe asks.
func (v *Validator[K]) Healthy() error {
	var errs []error
	for _, h := range v.health {
		if since := h.broken.Load(); since != nil {
			errs = append(errs, fmt.Errorf("the cache of %s lacks since %s what the API server has, and neither a new watch nor a new list has mended it",
				h.feed.Resource().Resource, since.Format(time.RFC3339)))
		}
	}
	return errors.Join(errs...)
}

// look does one round.
func (v *Validator[K]) look(ctx context.Context) error {
	v.looks++
	if v.looks%sweepEvery == 0 {
		v.config.Ledger.Sweep()
	}
	unresolved := map[schema.GroupResource]bool{}
	for _, resource := range v.config.Ledger.Unresolved() {
		unresolved[resource] = true
	}
	waiting, wentBack := v.waiting()
	errs := make([]error, len(v.health))
	var wg sync.WaitGroup
	for i, h := range v.health {
		resource := h.feed.Resource().GroupResource()
		wg.Go(func() { errs[i] = v.examine(ctx, h, unresolved[resource], waiting[resource], wentBack[resource]) })
	}
	wg.Wait()
	for range v.config.Backlog.RecheckAll() {
		// Each of them was released by nothing else.
		v.config.Metrics.fired(GuardValidator, "missed_release")
	}
	return errors.Join(errs...)
}

// waiting returns, for each resource, since when a key waits for its store to move, and
// whether the store is older than it was.
func (v *Validator[K]) waiting() (oldest map[schema.GroupResource]time.Time, wentBack map[schema.GroupResource]bool) {
	oldest, wentBack = map[schema.GroupResource]time.Time{}, map[schema.GroupResource]bool{}
	for _, p := range v.config.Backlog.Parked() {
		resource := p.Verdict.Resource
		switch p.Verdict.Cause {
		case WentBack:
			wentBack[resource] = true
		case Behind, Unordered:
		default:
			continue
		}
		if known, ok := oldest[resource]; !ok || p.WaitsSince.Before(known) {
			oldest[resource] = p.WaitsSince
		}
	}
	return oldest, wentBack
}

// examine holds one feed against the API server where there is a reason to, and heals it.
func (v *Validator[K]) examine(ctx context.Context, h *feedHealth, unresolved bool, waitingSince time.Time, wentBack bool) error {
	now := v.config.Clock.Now()
	v.config.Metrics.silent(h.feed.Resource(), now.Sub(h.feed.LastHeard()))
	v.notice(h, now, waitingSince)
	// The read also makes the API server's cache of an idle resource catch up, so that
	// the bookmark which is asked for next is worth something.
	missing := !h.missingSince.IsZero() && now.Sub(h.missingSince) >= v.config.Interval
	if unresolved || missing || now.Sub(h.asked) >= v.config.ProbePeriod {
		if err := v.probe(ctx, h, unresolved); err != nil {
			klog.FromContext(ctx).V(2).Info("Can't compare a cache with the API server", "resource", h.feed.Resource().Resource, "err", err)
			return nil
		}
	}
	if h.missingSince.IsZero() {
		return nil
	}
	return v.heal(ctx, h, now, wentBack)
}

// notice finds out since when the store lacks something.
func (v *Validator[K]) notice(h *feedHealth, now time.Time, waitingSince time.Time) {
	since := waitingSince
	if h.probed != "" && older(h.feed.Version(), h.probed) {
		// Nobody waits for it, so the next bookmark is soon enough.
		if due := h.probedAt.Add(bookmarkPeriod); !due.After(now) && (since.IsZero() || due.Before(since)) {
			since = due
		}
	}
	switch {
	case since.IsZero():
		if h.step > nudged {
			v.config.Metrics.fired(GuardValidator, "healed")
		}
		h.atRest()
	case h.missingSince.IsZero():
		h.missingSince = since
	}
}

// atRest takes in that the store lacks nothing.
func (h *feedHealth) atRest() {
	h.missingSince, h.step, h.compared = time.Time{}, untouched, false
	h.broken.Store(nil)
}

// probe asks the API server for the resource's version, and settles by it what is in
// doubt.
func (v *Validator[K]) probe(ctx context.Context, h *feedHealth, unresolved bool) error {
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	resource := h.feed.Resource().GroupResource()
	highest, asOf := v.config.Ledger.Highest(resource), v.config.Clock.Now()
	version, err := v.config.Live.Version(ctx, h.feed)
	if err != nil {
		return err
	}
	h.asked = asOf
	v.config.Ledger.Learn(resource, version, highest, asOf)
	if unresolved {
		v.config.Metrics.fired(GuardValidator, "doubts_resolved")
	}
	// A version that isn't reached is kept with the time at which it was learned:
	// a store that lags ever further behind must not be given ever more time.
	if h.probed == "" || !older(h.feed.Version(), h.probed) || older(version, h.probed) {
		h.probed, h.probedAt = version, asOf
	}
	return nil
}

// heal takes the next step about a feed that lacks something, once it is due.
func (v *Validator[K]) heal(ctx context.Context, h *feedHealth, now time.Time, wentBack bool) error {
	missing := now.Sub(h.missingSince)
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "resource", h.feed.Resource().Resource, "missingFor", missing)
	take := func(step healingStep, action string) {
		h.step, h.stepAt = step, now
		v.config.Metrics.fired(GuardValidator, action)
		logger.V(2).Info("A cache lacks what the API server has", "action", action)
	}
	stuckAfter := v.config.StuckAfter
	switch {
	case wentBack && missing >= v.config.Interval && h.step < relisted:
		// Nothing but a list replaces old objects for sure, and the API server
		// that they came from is better left.
		take(relisted, "relist")
		v.newConnections()
		v.relist(h)
	case missing >= 2*v.config.GiveUpAfter && h.step == notReady:
		take(givenUp, "given_up")
		return fmt.Errorf("the cache of %s lacks for %s what the API server has, and nothing has mended it", h.feed.Resource().Resource, missing)
	case missing >= v.config.GiveUpAfter && h.step < notReady:
		take(notReady, "not_ready")
		since := h.missingSince
		h.broken.Store(&since)
	case h.step >= relisted && now.Sub(h.stepAt) >= stuckAfter && !h.compared:
		v.config.Metrics.fired(GuardValidator, "compare")
		v.compare(ctx, h)
	case h.step >= relisted && now.Sub(h.stepAt) < 3*stuckAfter:
		// The last step may work still.
	case missing >= 3*stuckAfter && h.step >= reconnected:
		take(max(h.step, relisted), "relist")
		v.relist(h)
	case missing >= 2*stuckAfter && h.step == compared:
		take(reconnected, "reconnect")
		v.newConnections()
		h.feed.Bounce()
	case missing >= stuckAfter && h.step == nudged:
		take(compared, "compare")
		v.compare(ctx, h)
	case missing >= v.config.Interval && h.step == untouched:
		take(nudged, "nudge")
		h.feed.Nudge()
	}
	return nil
}

func (v *Validator[K]) relist(h *feedHealth) {
	h.compared = false
	h.feed.ForceRelist()
}

func (v *Validator[K]) newConnections() {
	if v.config.Reconnect != nil {
		v.config.Reconnect()
	}
}

// compare holds the store against the API server, object by object. If they are equal the
// store lacks nothing, although its version may say so: a write of an object that the
// feed's selector leaves out moves no version here.
func (v *Validator[K]) compare(ctx context.Context, h *feedHealth) {
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	h.compared = true
	asOf := v.config.Clock.Now()
	objects, err := v.config.Live.Objects(ctx, h.feed)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Can't compare a cache with the API server", "resource", h.feed.Resource().Resource, "err", err)
		return
	}
	version := h.feed.Version()
	if !h.feed.holds(objects) {
		return
	}
	v.config.Metrics.fired(GuardValidator, "found_equal")
	v.config.Ledger.Vouch(h.feed.Resource().GroupResource(), version, asOf)
	h.probed = ""
	h.atRest()
}
