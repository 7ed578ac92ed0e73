package lab

// What a telling has shown, in numbers.

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

// lag is how late the controller may take in what others write for no fault of its own, on a
// machine that is busy.
const lag = 3 * time.Second

// result is what one telling has shown.
type result struct {
	// beyond is how many Pods were created beyond the need, and unneeded how many were
	// deleted that needn't have been.
	beyond, unneeded int
	// handOuts, deletions and others are writes that were sent and that only the API server's
	// refusal stopped.
	handOuts, deletions, others int
	// idle are writes that were sent and changed nothing.
	idle int
	// broken is how often an invariant was broken, by its number.
	broken map[string]int
	// took is how long it took until what was asked for had come; stuck, that it hadn't
	// after patience.
	took  time.Duration
	stuck bool
	// outcome is what the story says itself.
	outcome string
}

// wasted is how many writes were sent for nothing.
func (r result) wasted() int {
	return r.beyond + r.unneeded + r.handOuts + r.deletions + r.others + r.idle
}

// measure sums a telling up. creates and deletes are how many Pods its story needs created and
// deleted by the controller.
func (s *telling) measure(creates, deletes int) (result, *history.History, []faultproxy.Log) {
	s.t.Helper()
	ctx, cancel := s.within(setUp)
	defer cancel()
	h, err := s.recorder.History(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	var logs []faultproxy.Log
	for _, p := range s.processes {
		logs = append(logs, p.proxy.Log())
	}
	r := result{took: s.took, stuck: s.stuck, outcome: s.outcome, broken: map[string]int{}}
	r.count(logs, creates, deletes)
	for _, v := range history.Judge(h, history.Terms{Logs: logs, Lag: lag, GarbageCollector: true}) {
		r.broken[v.Rule]++
		s.t.Log(v)
	}
	return r, h, logs
}

// count counts the controllers' writes.
func (r *result) count(logs []faultproxy.Log, creates, deletes int) {
	created, gone, made := 0, map[types.UID]bool{}, map[string]bool{}
	for _, log := range logs {
		for i := range log.Requests {
			q := &log.Requests[i]
			switch {
			case !history.IsGuarded(q):
			case q.Code >= http.StatusBadRequest && q.Code < http.StatusInternalServerError:
				r.refused(q)
			case !q.Committed():
			case q.Verb == "create":
				created++
			case q.Verb == "delete":
				gone[q.AnswerUID] = true
			case made[q.AnswerRV]:
				r.idle++ // an earlier write had made this version
			default:
				made[q.AnswerRV] = true
			}
		}
	}
	r.beyond, r.unneeded = max(created-creates, 0), max(len(gone)-deletes, 0)
}

func (r *result) refused(q *faultproxy.Request) {
	switch {
	case q.Verb == "patch" && q.Resource == "pods":
		r.handOuts++
	case q.Verb == "delete" && q.Resource == "pods":
		r.deletions++
	default:
		r.others++
	}
}

// isOlder compares two resourceVersions.
func isOlder(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}

// results are those of several tellings of one story.
type results []result

// worseThan tells whether these show harm that those with the guard don't.
func (all results) worseThan(with results) bool {
	worse := func(number func(result) int) bool { return all.median(number) > with.median(number) }
	tookLonger := all.median(result.milliseconds) > 2*with.median(result.milliseconds)+1000
	return worse(func(r result) int { return r.beyond }) || worse(result.wasted) ||
		worse(func(r result) int { return len(r.broken) }) || worse(result.isStuck) || tookLonger
}

func (r result) milliseconds() int { return int(r.took.Milliseconds()) }

func (r result) isStuck() int {
	if r.stuck {
		return 1
	}
	return 0
}

// spread is the smallest, the middle and the largest of a number.
func (all results) spread(number func(result) int) (least, middle, most int) {
	var numbers []int
	for _, r := range all {
		numbers = append(numbers, number(r))
	}
	slices.Sort(numbers)
	return numbers[0], numbers[len(numbers)/2], numbers[len(numbers)-1]
}

func (all results) median(number func(result) int) int {
	_, middle, _ := all.spread(number)
	return middle
}

// count is a number with its noun, or its range; empty if it is 0 throughout.
func (all results) count(noun, nouns string, number func(result) int) string {
	least, _, most := all.spread(number)
	switch {
	case most == 0:
		return ""
	case most == 1 && least == 1:
		return "1 " + noun
	case least == most:
		return fmt.Sprintf("%d %s", most, nouns)
	default:
		return fmt.Sprintf("%d to %d %s", least, most, nouns)
	}
}

// String is all of it in a cell of a table.
func (all results) String() string {
	parts := []string{
		all.outcomes(),
		all.count("Pod too many", "Pods too many", func(r result) int { return r.beyond }),
		all.count("Pod deleted for nothing", "Pods deleted for nothing", func(r result) int { return r.unneeded }),
		all.count("hand-out refused by the API server", "hand-outs refused by the API server", func(r result) int { return r.handOuts }),
		all.count("deletion refused", "deletions refused", func(r result) int { return r.deletions }),
		all.count("other write refused", "other writes refused", func(r result) int { return r.others }),
		all.count("write that changed nothing", "writes that changed nothing", func(r result) int { return r.idle }),
		all.violations(),
		all.time(),
	}
	parts = slices.DeleteFunc(parts, func(part string) bool { return part == "" })
	return strings.Join(parts, ", ")
}

// outcomes are what the stories say, once each.
func (all results) outcomes() string {
	var texts []string
	for _, r := range all {
		if r.outcome != "" && !slices.Contains(texts, r.outcome) {
			texts = append(texts, r.outcome)
		}
	}
	return strings.Join(texts, "; or ")
}

// violations are the invariants that were broken, how often at most, and in how many
// tellings, if not in all.
func (all results) violations() string {
	most, tellings := map[string]int{}, map[string]int{}
	for _, r := range all {
		for rule, n := range r.broken {
			most[rule] = max(most[rule], n)
			tellings[rule]++
		}
	}
	if len(most) == 0 {
		return ""
	}
	var rules []string
	for _, rule := range slices.SortedFunc(maps.Keys(most), func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }) {
		text := fmt.Sprintf("%s (%d×)", rule, most[rule])
		if tellings[rule] < len(all) {
			text = fmt.Sprintf("%s (%d×, in %d of %d tellings)", rule, most[rule], tellings[rule], len(all))
		}
		rules = append(rules, text)
	}
	return "**breaks " + strings.Join(rules, ", ") + "**"
}

// time is how long it took, or that it never came.
func (all results) time() string {
	ended := slices.DeleteFunc(slices.Clone(all), func(r result) bool { return r.stuck })
	if len(ended) == 0 {
		return fmt.Sprintf("**1 key stuck** (after %g s)", patience.Seconds())
	}
	least, _, most := ended.spread(result.milliseconds)
	text := seconds(most) + " s"
	if low := seconds(least); low != seconds(most) {
		text = low + " to " + text
	}
	if stuck := len(all) - len(ended); stuck > 0 {
		text += fmt.Sprintf(", **1 key stuck** (after %g s) in %d of %d tellings", patience.Seconds(), stuck, len(all))
	}
	return text
}

// seconds writes milliseconds as seconds, in as many digits as matter.
func seconds(milliseconds int) string {
	if milliseconds < 10_000 {
		return fmt.Sprintf("%.1f", float64(milliseconds)/1000)
	}
	return fmt.Sprintf("%.0f", float64(milliseconds)/1000)
}
