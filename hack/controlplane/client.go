package controlplane

// The few requests that this package itself makes, with the standard library alone.

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// probeTimeout bounds one question to a component, which may be frozen.
const probeTimeout = 2 * time.Second

// newClient trusts the control plane's own authority. It keeps no connection open,
// so nothing of it is left when a call returns.
func newClient(ca []byte) (*http.Client, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("no certificate in the control plane's ca.crt")
	}
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: pool},
		DisableKeepAlives: true,
	}}, nil
}

// request makes one request as Admin, with body as JSON unless it is nil, and returns
// the answer's body. An answer other than 2xx is a *statusError.
func (cp *ControlPlane) request(ctx context.Context, method, url string, body any) ([]byte, error) {
	var payload io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", method, url, err)
		}
		payload = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, payload)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, url, err)
	}
	req.Header.Set("Authorization", "Bearer "+cp.accounts[0].Token)
	req.Header.Set("Content-Type", "application/json")
	res, err := cp.client.Do(req)
	if err != nil {
		return nil, err // names method and URL already
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, url, err)
	}
	if res.StatusCode/100 != 2 {
		return nil, &statusError{Method: method, URL: url, Code: res.StatusCode, Body: string(answer)}
	}
	return answer, nil
}

// statusError is an answer that isn't the one hoped for.
type statusError struct {
	Method, URL string
	Code        int
	Body        string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s %s answered %d: %s", e.Method, e.URL, e.Code, strings.TrimSpace(e.Body))
}
