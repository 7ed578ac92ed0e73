package lab

// docs/lab.svg: one race as a timeline, without its guard and with it, drawn from what was
// recorded.

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	svg "github.com/ajstarks/svgo"
	"k8s.io/apimachinery/pkg/types"

	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

// The measures of the picture, in pixels.
const (
	width, height  = 960, 606
	left, right    = 150, 930 // of the time axis
	top            = 96       // of the first panel
	panelHeight    = 248
	curveHeight    = 118
	laneHeight     = 22
	tickHalfHeight = 7
)

// The colours are told apart by those who don't see red and green as others do.
const (
	ink, faint, paper = "#1f2328", "#6e7781", "#ffffff"
	// The lines are of different widths, so that both are seen where they meet.
	realLine, toldLine = "stroke-width:5;stroke:#56a0d3", "stroke-width:2;stroke:#b34700"
	needed, surplus    = "#009e73", "#d55e00"
	removed, touched   = "#8250df", "#1f2328"
	heldBack, parked   = "#f1f3f5", "#dbeafe"
	text               = "font-family:system-ui,-apple-system,'Segoe UI','DejaVu Sans',Helvetica,Arial,sans-serif;font-size:13px;"
)

// mark is something that happens at a time.
type mark struct {
	at     time.Time
	colour string
}

// level is a number from a time on.
type level struct {
	at time.Time
	n  int
}

// panel is one telling, as it is drawn.
type panel struct {
	title          string
	begun, release time.Time
	// exist are the Pods at the API server, known those that the controller was told of.
	exist, known            []level
	touches, writes, deaths []mark
	created                 int
	guarded                 bool
}

// newPanel draws from what was recorded. need is how many Pods are asked for.
func newPanel(s shot, need int, guarded bool) panel {
	p := panel{release: s.from, guarded: guarded}
	alive := map[types.UID]bool{}
	annotation := ""
	for i := range s.history.Versions {
		v := &s.history.Versions[i]
		switch v.Resource {
		case history.WarmPools:
			if p.begun.IsZero() {
				p.begun = v.Time
			}
			if now := v.Object.GetAnnotations()["touched"]; now != annotation {
				annotation = now
				p.touches = append(p.touches, mark{v.Time, touched})
			}
		case history.Pods:
			alive[v.UID()] = !v.Deleted && v.Object.GetDeletionTimestamp() == nil
			p.exist = append(p.exist, level{v.Time, count(alive)})
		}
	}
	p.requests(s.log, need)
	p.deliveries(s.log)
	return p
}

func count(alive map[types.UID]bool) (n int) {
	for _, is := range alive {
		if is {
			n++
		}
	}
	return n
}

// requests are the creations and deletions that were done.
func (p *panel) requests(log faultproxy.Log, need int) {
	for i := range log.Requests {
		q := &log.Requests[i]
		switch {
		case !history.IsGuarded(q) || q.Resource != "pods" || !q.Committed():
		case q.Verb == "create":
			p.created++
			colour := needed
			if p.created > need {
				colour = surplus
			}
			p.writes = append(p.writes, mark{q.Answered, colour})
		case q.Verb == "delete":
			p.deaths = append(p.deaths, mark{q.Answered, removed})
		}
	}
}

// deliveries are the Pods that the controller was told of.
func (p *panel) deliveries(log faultproxy.Log) {
	alive := map[types.UID]bool{}
	for _, d := range log.Deliveries {
		if d.Resource == history.Pods && d.Type != "BOOKMARK" {
			alive[d.UID] = d.Type != "DELETED"
			p.known = append(p.known, level{d.Time, count(alive)})
		}
	}
}

// scale places times and numbers of Pods.
type scale struct {
	span time.Duration
	most int
}

func (s scale) x(since time.Duration) int {
	return left + int(float64(right-left)*min(max(since.Seconds()/s.span.Seconds(), 0), 1))
}

func (s scale) y(n int) int { return curveHeight - (curveHeight-18)*n/max(s.most, 1) }

// draw draws the panels, one below the other, on one scale.
func draw(without, with shot, need int) []byte {
	panels := []panel{newPanel(without, need, false), newPanel(with, need, true)}
	panels[0].title = fmt.Sprintf("Without the ledger: %d Pods are created, and %d deleted again", panels[0].created, len(panels[0].deaths))
	panels[1].title = fmt.Sprintf("With the ledger: %d Pods are created", panels[1].created)
	var s scale
	for _, p := range panels {
		s.span = max(s.span, p.release.Sub(p.begun)+time.Second)
		for _, l := range p.exist {
			s.most = max(s.most, l.n)
		}
		for _, m := range p.deaths {
			s.span = max(s.span, m.at.Sub(p.begun)+300*time.Millisecond)
		}
	}
	var out bytes.Buffer
	c := svg.New(&out)
	c.Startview(width, height, 0, 0, width, height)
	c.Title("One race, without the ledger and with it")
	c.Desc(panels[0].title + ". " + panels[1].title + ". The pool asks for " + fmt.Sprint(need) + ", and no Pod's event reaches the controller for a while.")
	c.Roundrect(1, 1, width-2, height-2, 8, 8, "fill:"+paper+";stroke:#d0d7de")
	c.Text(24, 38, fmt.Sprintf("A pool of %d fills, and the controller is told of no Pod", need), text+"font-size:20px;font-weight:600;fill:"+ink)
	legend(c)
	for i, p := range panels {
		c.Gtransform(fmt.Sprintf("translate(0,%d)", top+i*(panelHeight+8)))
		p.draw(c, s, need)
		c.Gend()
	}
	c.End()
	return out.Bytes()
}

// legend says what the lines are.
func legend(c *svg.SVG) {
	const y = 62
	c.Line(24, y, 48, y, realLine)
	c.Text(56, y+4, "Pods that exist", text+"fill:"+ink)
	c.Line(176, y, 200, y, toldLine)
	c.Text(208, y+4, "Pods that the controller was told of", text+"fill:"+ink)
	x := 476
	for _, l := range []struct{ colour, name string }{{needed, "needed"}, {surplus, "one too many"}, {removed, "deleted again"}} {
		c.Line(x, y-tickHalfHeight, x, y+tickHalfHeight, "stroke-width:3;stroke:"+l.colour)
		c.Text(x+8, y+4, l.name, text+"fill:"+ink)
		x += 128
	}
}

// draw draws one panel at the origin.
func (p *panel) draw(c *svg.SVG, s scale, need int) {
	lanes := curveHeight + 16
	bottom := lanes + 3*laneHeight
	end := s.x(p.release.Sub(p.begun))
	c.Text(24, 4, p.title, text+"font-size:15px;font-weight:600;fill:"+ink)
	c.Rect(left, 14, end-left, bottom-14, "fill:"+heldBack)
	c.Text(left+8, 30, "Pod events are held back", text+"fill:"+faint)
	if p.guarded && len(p.writes) > 0 {
		from := s.x(p.writes[len(p.writes)-1].at.Sub(p.begun))
		c.Rect(from, lanes, end-from, 3*laneHeight, "fill:"+parked)
		c.Text(from+8, lanes+2*laneHeight+16, "the key is parked, and released by the event that it waits for", text+"fill:"+ink)
	}
	c.Line(left, s.y(need), right, s.y(need), "stroke-dasharray:5 4;stroke:"+faint)
	c.Text(left-8, s.y(need)+4, fmt.Sprintf("asked for: %d", need), text+"text-anchor:end;fill:"+faint)
	c.Text(left-8, s.y(s.most)+4, fmt.Sprint(s.most), text+"text-anchor:end;fill:"+faint)
	p.curve(c, s, p.exist, realLine)
	p.curve(c, s, p.known, toldLine)
	for i, lane := range []struct {
		name  string
		marks []mark
	}{{"pool is touched", p.touches}, {"Pod is created", p.writes}, {"Pod is deleted", p.deaths}} {
		y := lanes + i*laneHeight + laneHeight/2
		c.Text(left-8, y+4, lane.name, text+"text-anchor:end;fill:"+ink)
		for _, m := range lane.marks {
			x := s.x(m.at.Sub(p.begun))
			c.Line(x, y-tickHalfHeight, x, y+tickHalfHeight, "stroke-width:2;stroke:"+m.colour)
		}
	}
	axis(c, s, bottom)
}

// curve is a line that steps from level to level.
func (p *panel) curve(c *svg.SVG, s scale, levels []level, style string) {
	xs, ys := []int{left}, []int{s.y(0)}
	for _, l := range levels {
		x := s.x(l.at.Sub(p.begun))
		xs = append(xs, x, x)
		ys = append(ys, ys[len(ys)-1], s.y(l.n))
	}
	xs, ys = append(xs, right), append(ys, ys[len(ys)-1])
	c.Polyline(slices.Clone(xs), slices.Clone(ys), "fill:none;"+style)
}

// axis is the time, in seconds since the pool was created.
func axis(c *svg.SVG, s scale, y int) {
	c.Line(left, y, right, y, "stroke:"+faint)
	for at := time.Duration(0); at <= s.span; at += time.Second {
		c.Line(s.x(at), y, s.x(at), y+4, "stroke:"+faint)
		c.Text(s.x(at), y+18, fmt.Sprintf("%d s", int(at.Seconds())), text+"text-anchor:middle;fill:"+faint)
	}
}
