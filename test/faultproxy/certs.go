package faultproxy

// The proxy's own certificate, made at each start.

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"time"
)

// discard is for the HTTP server, which has nothing to say that matters here.
var discard = log.New(io.Discard, "", 0)

type tlsCertificate struct{ tls.Certificate }

func (c tlsCertificate) config() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{c.Certificate}, MinVersion: tls.VersionTLS12}
}

// newCertificate returns a certificate for 127.0.0.1 that is its own authority, valid
// for a year, and the authority in PEM.
func newCertificate(now time.Time) (tlsCertificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tlsCertificate{}, nil, fmt.Errorf("make a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "faultproxy"},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.AddDate(1, 0, 0),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tlsCertificate{}, nil, fmt.Errorf("make a certificate: %w", err)
	}
	var ca bytes.Buffer
	if err := pem.Encode(&ca, &pem.Block{Type: "CERTIFICATE", Bytes: der}); err != nil {
		return tlsCertificate{}, nil, fmt.Errorf("encode a certificate: %w", err)
	}
	return tlsCertificate{tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}}, ca.Bytes(), nil
}
